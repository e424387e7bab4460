//! VMs, disks and network adapters as an inventory shows them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::size::VmSize;
use crate::nodes::clean;
use crate::schema;

/// Whether a VM runs, as far as that is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    /// Nothing of the VM runs.
    Off,
    On,
    /// Its memory is saved, and it continues from there.
    Suspended,
    /// The hypervisor does not know: the VM's host does not answer, or a command was killed during the power-on.
    Unknown,
}

impl PowerState {
    /// Whether this state proves that the VM was powered on. `Unknown` proves nothing: a VM that was never on may be on
    /// a host that does not answer.
    pub fn proves_power_on(self) -> bool {
        matches!(self, Self::On | Self::Suspended)
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Suspended => "suspended",
            Self::Unknown => "in an unknown power state",
        })
    }
}

/// The host that a VM is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in the inventory.
    pub name: String,
    /// Whether the hypervisor is connected to it: only then the power state of its VMs is known.
    pub responds: bool,
}

/// A VM, by both of its identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmRef {
    /// BIOS UUID of the VM. The guest can read it.
    #[schemars(schema_with = "schema::uuid")]
    pub uuid: Uuid,
    /// The hypervisor's identifier of the VM, such as its managed object ID in a vCenter.
    #[schemars(length(max = 253))]
    pub id: String,
}

/// The owner of a VM. It is set at the creation, or when an operator has confirmed that the VM belongs to this
/// deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The deployment: the same for all VMs of a cluster.
    pub deployment: Uuid,
    pub node: String,
    /// The image swap that created the VM. `None` for a VM of the first deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Uuid>,
}

impl Stamp {
    /// The stamp of a VM that was given up: the nil UUID, which no deployment has. The other fields stay.
    pub fn released(&self) -> Self {
        Self { deployment: Uuid::nil(), ..self.clone() }
    }
}

/// Identifies a disk. A detached disk cannot be found by its UUID, only by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskRef {
    /// UUID of the disk.
    #[schemars(schema_with = "schema::uuid")]
    pub uuid: Uuid,
    /// Path of the disk in the hypervisor's notation, such as a datastore path.
    #[schemars(length(max = 1024))]
    pub path: String,
}

impl DiskRef {
    /// The path of another file in the same directory: the same name, with this mark before the extension.
    pub fn beside(&self, mark: &str) -> String {
        match self.path.rsplit_once('.') {
            Some((stem, extension)) if !extension.contains('/') => format!("{stem}-{mark}.{extension}"),
            _ => format!("{}-{mark}", self.path),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// Comes with the image and is deleted with the VM.
    System,
    Data,
    /// Not part of the appliance: a volume of a storage driver.
    Foreign,
}

/// A disk that a VM holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    #[serde(flatten)]
    pub reference: DiskRef,
    pub kind: DiskKind,
    /// The disk that this one is a delta of. It is then part of a snapshot and cannot be detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The controller that the disk is attached to.
    pub controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// The hypervisor's identifier.
    pub key: String,
    pub network: String,
    pub mac: String,
    /// Whether it is connected now, or will be at the next power-on. A fenced VM has no such adapter.
    pub connected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    #[serde(flatten)]
    pub reference: VmRef,
    pub name: String,
    /// `None` if the VM has no stamp.
    #[serde(default)]
    pub stamp: Option<Stamp>,
    pub power: PowerState,
    /// `None` if the hypervisor does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<VmSize>,
    pub disks: Vec<Disk>,
    pub adapters: Vec<Adapter>,
    /// The names of its snapshots.
    pub snapshots: Vec<String>,
    /// The running tasks, in the hypervisor's words.
    pub tasks: Vec<String>,
    /// Changes whenever the VM's settings do.
    pub version: String,
    /// The path of the settings file, if the hypervisor has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
}

impl Vm {
    pub fn uuid(&self) -> Uuid {
        self.reference.uuid
    }

    pub fn data_disks(&self) -> impl Iterator<Item = &Disk> {
        self.disks.iter().filter(|disk| disk.kind == DiskKind::Data)
    }

    pub fn disk(&self, uuid: Uuid) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.reference.uuid == uuid)
    }

    /// Whether it carries a deployment's stamp.
    pub fn is_of(&self, deployment: Uuid) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.deployment == deployment)
    }

    /// Whether it carries another deployment's stamp, or that of a VM that was given up.
    pub fn is_anothers(&self, deployment: Uuid) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.deployment != deployment)
    }

    /// Whether it was created for this image swap.
    pub fn is_of_swap(&self, swap: Uuid) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.swap == Some(swap))
    }

    /// Whether it is a different VM with the BIOS UUID of a VM whose removal was requested.
    pub fn is_double_of(&self, gone: &VmRef) -> bool {
        self.reference.uuid == gone.uuid && self.reference.id != gone.id
    }

    /// Whether no adapter is connected, now or at power-on.
    pub fn is_fenced(&self) -> bool {
        self.adapters.iter().all(|adapter| !adapter.connected)
    }
}

/// Name and BIOS UUID, for messages.
impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", clean(&self.name), self.uuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_path_is_next_to_its_disk() {
        for (path, beside) in [
            ("[ds 1] cp1/data.vmdk", "[ds 1] cp1/data-before-1a2b3c4d.vmdk"),
            ("[ds.1] cp.1/data", "[ds.1] cp.1/data-before-1a2b3c4d"),
            ("/lab/disks/a.raw", "/lab/disks/a-before-1a2b3c4d.raw"),
        ] {
            let disk = DiskRef { uuid: Uuid::nil(), path: path.to_owned() };
            assert_eq!(disk.beside("before-1a2b3c4d"), beside);
        }
    }
}
