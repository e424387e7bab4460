//! VMs, disks and network adapters as an inventory shows them.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::size::VmSize;
use crate::nodes::clean;

/// Whether a VM runs, as far as it can be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    /// Nothing of the VM runs.
    Off,
    On,
    /// Its memory is kept; it goes on where it was.
    Suspended,
    /// The hypervisor does not know: its host does not answer, or somebody was killed while he powered it on.
    Unknown,
}

impl PowerState {
    /// Whether it proves that the VM was powered on. What the hypervisor does not know proves nothing: the host of one that was never on
    /// may be the one that does not answer.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRef {
    /// BIOS UUID: what the guest knows of itself.
    pub uuid: Uuid,
    /// What the hypervisor calls it: a managed object identifier, a directory.
    pub id: String,
}

/// Whose a VM is: set when it is made, or when an operator has confirmed that it is this deployment's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The deployment: the same for all VMs of a cluster.
    pub deployment: Uuid,
    pub node: String,
    /// The swap that it was made for; none for a VM of the first deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Uuid>,
}

impl Stamp {
    /// That of a VM that was given up: nobody's, with what it was made for. No deployment has the nil UUID.
    pub fn released(&self) -> Self {
        Self { deployment: Uuid::nil(), ..self.clone() }
    }
}

/// What names a disk. A detached disk cannot be looked up by its UUID: the path leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRef {
    pub uuid: Uuid,
    /// Where it is, in the hypervisor's words: a datastore path, a file.
    pub path: String,
}

impl DiskRef {
    /// The path of another file beside its own: the name is the same, with this mark before the extension.
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
    /// Comes with the image and goes with the VM.
    System,
    Data,
    /// Not the appliance's: a volume of a storage driver.
    Foreign,
}

/// A disk that a VM holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    #[serde(flatten)]
    pub reference: DiskRef,
    pub kind: DiskKind,
    /// The disk that it is a difference to: it is part of a snapshot then, and cannot be detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The controller that it hangs on.
    pub controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// What the hypervisor calls it.
    pub key: String,
    pub network: String,
    pub mac: String,
    /// Whether it is connected now, or will be at the next power-on: fenced is what is neither.
    pub connected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    #[serde(flatten)]
    pub reference: VmRef,
    pub name: String,
    /// Whose it is; none if it carries no stamp.
    #[serde(default)]
    pub stamp: Option<Stamp>,
    pub power: PowerState,
    /// How large it is; none where the hypervisor does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<VmSize>,
    pub disks: Vec<Disk>,
    pub adapters: Vec<Adapter>,
    /// The names of its snapshots.
    pub snapshots: Vec<String>,
    /// What is being done to it, in the hypervisor's words.
    pub tasks: Vec<String>,
    /// Changes whenever the VM's settings do.
    pub version: String,
    /// The file that its settings are in, where the hypervisor keeps such.
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

    /// Whether it carries the stamp of another one, or that of a VM that was given up.
    pub fn is_anothers(&self, deployment: Uuid) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.deployment != deployment)
    }

    /// Whether it was made for this swap.
    pub fn is_of_swap(&self, swap: Uuid) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.swap == Some(swap))
    }

    /// Whether it is another VM than one whose removal was asked for, and has that one's BIOS UUID.
    pub fn is_double_of(&self, gone: &VmRef) -> bool {
        self.reference.uuid == gone.uuid && self.reference.id != gone.id
    }

    /// Whether no adapter of it is connected, now or at power-on.
    pub fn is_fenced(&self) -> bool {
        self.adapters.iter().all(|adapter| !adapter.connected)
    }
}

/// Name and BIOS UUID, for people.
impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", clean(&self.name), self.uuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_lies_beside_its_disk_and_says_what_it_is() {
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
