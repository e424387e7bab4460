//! The end of a worker's VM once the worker has left.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a VM is destroyed or kept when its Machine is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Removal {
    /// The VM is destroyed. Disks that are not the appliance's are detached first.
    #[default]
    #[serde(rename = "DestroyVM")]
    Destroy,
    /// The VM is kept: powered off, with its network adapters disconnected, all its disks, and another name. From then on the
    /// controller neither counts nor changes it. An incomplete VM is destroyed.
    #[serde(rename = "KeepVM")]
    Keep,
}
