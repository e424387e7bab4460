//! A copy of a data disk, as a journal names it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hypervisor::DiskRef;

/// A copy of a data disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCopy {
    /// Where it lies, in the hypervisor's words.
    pub path: String,
    /// Its UUID; none while it is not known to be whole: perhaps half of one lies there, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
}

impl KeptCopy {
    /// What names it; none if it may be half.
    pub(super) fn disk(&self) -> Option<DiskRef> {
        self.uuid.map(|uuid| DiskRef { uuid, path: self.path.clone() })
    }
}

impl From<DiskRef> for KeptCopy {
    fn from(DiskRef { uuid, path }: DiskRef) -> Self {
        Self { path, uuid: Some(uuid) }
    }
}
