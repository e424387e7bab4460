//! What is said over the node's endpoint to renew its certificates: the body of `POST /v1/certificates`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Where it is asked for. The answer is 202 until the control plane of the node runs with the new certificates, and 200 then.
pub const PATH: &str = "/v1/certificates";

/// What `POST /v1/certificates` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The client draws it. A second request with it returns the progress.
    pub id: Uuid,
}
