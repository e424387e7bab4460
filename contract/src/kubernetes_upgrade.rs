//! What is said over the node's endpoint: the body of `POST /v1/kubernetes`, and what
//! `GET /v1/node` tells of an upgrade.

use serde::{Deserialize, Serialize};

/// What `POST /v1/kubernetes` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The minor, such as `1.36`.
    pub to: String,
    /// How long pods may take to move away, in seconds.
    pub drain_seconds: u64,
    /// Whether it is only to be judged.
    #[serde(default)]
    pub check: bool,
}

/// An upgrade that is under way or was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeState {
    /// The minor that the node is taken to.
    pub to: String,
    /// Why it was given up, if it was: the node is as before then.
    pub error: Option<String>,
    /// The stable code of why it was given up, such as `drain.blocked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
