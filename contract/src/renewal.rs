//! The request over the node's endpoint to renew its certificates: the body of `POST /v1/certificates`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The path of the route. The answer is 202 until the control plane of the node runs with the new certificates, and then 200.
pub const PATH: &str = "/v1/certificates";

/// The body of `POST /v1/certificates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The identifier, which the client draws. A second request with it returns the progress.
    pub id: Uuid,
}
