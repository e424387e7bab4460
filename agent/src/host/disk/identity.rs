//! The identity on a data disk: the node that it belongs to, and the VMs that may take it. [`super::slots`] stores it,
//! and [`super::ownership`] has the rules.

use std::fmt;
use std::str::FromStr;

use contract::bios_uuid::BiosUuid;
use contract::swap::{Image, VmImage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A machine ID as in machine-id(5): 128 bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(Uuid);

impl MachineId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The machine ID of a VM that cannot store one: derived from its BIOS UUID, and the same at each boot.
    pub fn of_machine(bios_uuid: BiosUuid) -> Self {
        let digest = Sha256::new().chain_update(b"kaas machine ID").chain_update(bios_uuid.as_bytes()).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a machine ID is 32 hexadecimal digits, not all zero")]
pub struct NoMachineId;

impl FromStr for MachineId {
    type Err = NoMachineId;

    fn from_str(text: &str) -> Result<Self, NoMachineId> {
        let text = text.trim();
        let uuid = if text.len() == 32 { Uuid::try_parse(text).ok() } else { None };
        uuid.filter(|uuid| !uuid.is_nil()).map(Self).ok_or(NoMachineId)
    }
}

impl TryFrom<String> for MachineId {
    type Error = NoMachineId;

    fn try_from(text: String) -> Result<Self, NoMachineId> {
        text.parse()
    }
}

impl From<MachineId> for String {
    fn from(id: MachineId) -> Self {
        id.to_string()
    }
}

/// The state of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// The disk is prepared. The node is not part of a cluster yet.
    Unformed,
    /// The node is part of its cluster.
    Formed,
    /// The disk must be erased before any other use.
    Erasing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The GPT disk GUID, generated when the disk was prepared.
    pub disk: Uuid,
    /// The cluster's identifier, known after it has formed.
    pub cluster_id: Option<Uuid>,
    pub cluster: String,
    /// The node's name in the cluster.
    pub node: String,
    /// The name of its etcd member.
    pub member: String,
    /// The version of the image that last used the disk.
    pub image_version: String,
    /// How many VMs have taken over the disk: 1 for the first.
    pub generation: u64,
    /// BIOS UUID of the VM that holds the disk. `None` after its release for another VM.
    pub holder: Option<BiosUuid>,
    pub machine_id: MachineId,
    pub host_name: String,
    /// The state of the node.
    pub state: DiskState,
    /// Fingerprint of the pinned publisher's key; see [`crate::upgrade::swap::publisher`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// An image swap that is prepared or not committed yet; see [`crate::host::disk::ownership`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Exists only on the disk for a worker's local volumes, which is no data disk. Such a disk takes part in no image
    /// swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_volumes: Option<LocalVolumes>,
}

/// The owner of the local volumes on a disk, in addition to the names of node and cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVolumes {
    /// The hash of the public key of the cluster's CA. A cluster's name may be used again, but its key is not.
    #[serde(rename = "authority_hash")]
    pub ca_hash: String,
}

/// An image swap, from its preparation or the release of the disk until the commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    pub id: Uuid,
    pub from: VmImage,
    /// The image that may take the disk. `None` for a manual swap: any that is not older.
    #[serde(default)]
    pub to: Option<Image>,
    /// The VM that released the disk last, if not `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<VmImage>,
    /// Whether the operator took the disk over from a VM that had not released it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Fingerprint of the key to pin at the commit, if the operator has named another key than the pinned one. An image
    /// that it has signed may take the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_machine_ids_are_refused() {
        assert!("0".repeat(32).parse::<MachineId>().is_err());
        assert!("01234567-89ab-cdef-0123-456789abcdef".parse::<MachineId>().is_err());
        assert!("uninitialized".parse::<MachineId>().is_err());
        assert_eq!(MachineId::random().to_string().len(), 32);
    }
}
