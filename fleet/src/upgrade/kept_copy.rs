//! A copy of a data disk, as a journal names it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hypervisor::DiskRef;
use crate::nodes::clean;

/// A copy of a data disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptCopy {
    /// Where it lies, in the hypervisor's words.
    pub path: String,
    /// Its UUID. `None` while it is not known to be complete: an incomplete copy may exist, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
}

/// A node's copy, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskCopy {
    /// The node whose data disk it is a copy of.
    pub node: String,
    #[serde(flatten)]
    pub copy: KeptCopy,
}

/// Of which node's disk it is, and where it lies.
impl fmt::Display for DiskCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = if self.copy.uuid.is_some() { "" } else { " (perhaps incomplete or empty)" };
        write!(f, "of {}: {}{half}", clean(&self.node), clean(&self.copy.path))
    }
}

impl KeptCopy {
    /// The reference of a complete copy. `None` if it may be incomplete.
    pub(super) fn disk(&self) -> Option<DiskRef> {
        self.uuid.map(|uuid| DiskRef { uuid, path: self.path.clone() })
    }
}

impl From<DiskRef> for KeptCopy {
    fn from(DiskRef { uuid, path }: DiskRef) -> Self {
        Self { path, uuid: Some(uuid) }
    }
}
