//! What can be done for a cluster, one thing at a time.

use std::fmt;

use crate::hypervisor::{DiskRef, VmRef};

/// One thing to do. Each looks again before it acts, and may be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes a node's VM, powered off.
    Make(String),
    /// Notes that a node's VM is started, and powers it on.
    PowerOn(String),
    /// Notes that the cluster has formed, and with which authority.
    Formed,
    /// Shuts a VM down, or cuts its power where it does not listen.
    PowerOff(VmRef),
    /// Notes what becomes of a disk, and takes it out of its VM.
    Detach(VmRef, DiskRef),
    Destroy(VmRef),
    /// Removes a disk that nobody holds.
    DeleteDisk(DiskRef),
    /// Notes that nothing is left.
    Gone,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(node) => write!(f, "making the VM of {node}"),
            Self::PowerOn(node) => write!(f, "powering {node} on"),
            Self::Formed => f.write_str("the cluster has formed"),
            Self::PowerOff(vm) => write!(f, "shutting {} down", vm.id),
            Self::Detach(vm, disk) => write!(f, "taking the disk {} out of {}", disk.uuid, vm.id),
            Self::Destroy(vm) => write!(f, "removing {}", vm.id),
            Self::DeleteDisk(disk) => write!(f, "removing the disk {}", disk.uuid),
            Self::Gone => f.write_str("nothing of the cluster is left"),
        }
    }
}
