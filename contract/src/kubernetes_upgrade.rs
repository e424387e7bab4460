//! Upgrades of Kubernetes over the node's endpoint: the body of `POST /v1/kubernetes`, and the state of an upgrade in
//! `GET /v1/node`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of `POST /v1/kubernetes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The minor version, such as `1.36`.
    pub to: String,
    /// How long a drain may take, in seconds.
    pub drain_seconds: u64,
    /// Whether it is only a check.
    #[serde(default)]
    pub check: bool,
}

/// An upgrade that is under way or was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeState {
    /// The minor version that the node is upgraded to.
    pub to: String,
    /// Why it was given up, if it was. The node is then at its former version.
    pub error: Option<String>,
    /// The stable code of the reason, such as `drain.blocked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
