//! How large a VM is.

use serde::{Deserialize, Serialize};

/// What a VM has of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Virtual processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Size of a data disk in bytes; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<u64>,
}
