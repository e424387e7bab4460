//! Who a data disk belongs to, and who may have it next: what stands on the disk itself. How it is kept there is known to
//! [`super::slots`], who may take it to [`super::ownership`].

use std::fmt;
use std::str::FromStr;

use contract::bios_uuid::BiosUuid;
use contract::swap::{Image, VmImage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A machine ID as machine-id(5) wants it: 128 bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(Uuid);

impl MachineId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The one of a VM that has nothing to keep one on: made of its BIOS UUID, and the same at each boot.
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

/// A text that is no machine ID.
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

/// How far the node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// The disk is prepared; the node is not part of a cluster yet.
    Unformed,
    /// The node is part of its cluster.
    Formed,
    /// The disk is to be erased before anything else is done with it.
    Erasing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The disk itself: its GPT disk GUID, made when it was prepared.
    pub disk: Uuid,
    /// The cluster's identifier, known once it is formed.
    pub cluster_id: Option<Uuid>,
    pub cluster: String,
    /// The node's name in the cluster.
    pub node: String,
    /// The name of its etcd member.
    pub member: String,
    /// The version of the image that last used the disk.
    pub image_version: String,
    /// How many VMs have taken the disk over: 1 for the first.
    pub generation: u64,
    /// BIOS UUID of the VM that holds the disk; none once it was released for another VM.
    pub holder: Option<BiosUuid>,
    pub machine_id: MachineId,
    pub host_name: String,
    /// How far the node has come.
    pub state: DiskState,
    /// Fingerprint of the publisher's key that is pinned; see [`crate::upgrade::swap::publisher`]. Written when the
    /// cluster forms and by a commit only: an image that does not know of it never has to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The swap that is prepared or not committed yet; see [`crate::host::disk::ownership`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Present on the disk of a worker's local volumes, which is no node's data disk. Such a disk takes part in no swap: an
    /// image that does not know of this field calls it a later version's and leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_volumes: Option<LocalVolumes>,
}

/// Whose local volumes a disk holds, besides the names of node and cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVolumes {
    /// The hash of the public key of the cluster's authority: a cluster's name may be used again, its key is not.
    #[serde(rename = "authority_hash")]
    pub ca_hash: String,
}

/// A swap, from its preparation or the release of the disk until it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    pub id: Uuid,
    pub from: VmImage,
    /// Which image may take the disk; none for a swap by hand: any that is not older.
    #[serde(default)]
    pub to: Option<Image>,
    /// Who released the disk last, if not `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<VmImage>,
    /// Whether a person took the disk over from a VM that had not released it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Fingerprint of the key that is to be pinned at the commit, if somebody has named another one than is
    /// pinned: an image that it has signed may take the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_ids_are_checked() {
        assert!("0".repeat(32).parse::<MachineId>().is_err());
        assert!("01234567-89ab-cdef-0123-456789abcdef".parse::<MachineId>().is_err());
        assert!("uninitialized".parse::<MachineId>().is_err());
        assert_eq!(MachineId::random().to_string().len(), 32);
    }
}
