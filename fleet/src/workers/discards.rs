//! Data that may be lost with a worker that leaves.

use serde::{Deserialize, Serialize};

/// The operator's permissions for one worker, given each time again. Without them it stays until the operator acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Discards {
    /// Volumes that exist only on it.
    pub delete_local_volumes: bool,
    /// Pods without a controller, which are not started elsewhere.
    pub delete_unmanaged_pods: bool,
}
