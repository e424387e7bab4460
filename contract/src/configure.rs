//! Changes of a node's properties over its endpoint: `POST /v1/configure`. A refusal is a 409 with code and reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The path of the route.
pub const PATH: &str = "/v1/configure";

/// The body: properties that are changed together, or not at all. The answer: what the node has now of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Their values by key.
    pub properties: BTreeMap<String, String>,
}
