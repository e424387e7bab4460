//! The size of a VM.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub processors: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Size of the data disk in bytes. `None` for a VM without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<u64>,
}

/// Processors and memory of a VM. They may differ from those of the VM that it replaces. Disks move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmSize {
    pub processors: u32,
    /// Memory in MiB.
    pub memory: u64,
}

impl fmt::Display for VmSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processors and {} MiB of memory", self.processors, self.memory)
    }
}
