//! Data that may be lost with a worker that leaves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data that may be lost with a node that leaves. The operator permits it for one worker, each time again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Discards {
    /// Volumes that are stored on the node only.
    #[serde(default)]
    pub delete_local_volumes: bool,
    /// Pods without a controller: they are not started on another node.
    #[serde(default)]
    pub delete_unmanaged_pods: bool,
}
