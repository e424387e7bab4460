//! What may be lost with a worker that leaves.

use serde::{Deserialize, Serialize};

/// What a person has said of one worker, each time anew: without that it stays until a person has seen to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Discards {
    /// Volumes that are kept on it and nowhere else.
    pub delete_local_volumes: bool,
    /// Pods without a controller, which nobody starts elsewhere.
    pub delete_unmanaged_pods: bool,
}
