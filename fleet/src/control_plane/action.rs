//! The actions of a cluster, one at a time.

use std::fmt;

use crate::hypervisor::{DiskRef, VmRef};

/// One action. Each reads the state again before it acts, and may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates a node's VM, powered off.
    CloneVm(String),
    /// Records that a node's VM is started, and powers it on.
    PowerOn(String),
    /// Records that the cluster has formed, and its CA.
    Formed,
    /// Has another node admit a blank VM in place of a lost one, and creates that VM, powered off.
    Replace(String),
    /// Records that a lost node's new VM is started, and powers it on.
    StartReplacement(String),
    /// Draws another BIOS UUID for a lost node's new VM, which is gone.
    DrawAgain(String),
    /// Records that a lost node's new VM has joined.
    Replaced(String),
    /// Disconnects a former VM of a replaced node, powers it off, or gives it up. Its data disk stays.
    Retire(VmRef),
    /// Shuts a VM down, or cuts its power if the guest does not respond.
    PowerOff(VmRef),
    /// Records whether a disk is retained or removed, and detaches it from its VM.
    Detach(VmRef, DiskRef),
    Destroy(VmRef),
    /// Removes a disk that no VM holds.
    DeleteDisk(DiskRef),
    /// Records that nothing is left.
    Gone,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CloneVm(node) => write!(f, "making the VM of {node}"),
            Self::PowerOn(node) => write!(f, "powering {node} on"),
            Self::Formed => f.write_str("the cluster has formed"),
            Self::Replace(node) => write!(f, "admitting a new VM for {node}, and creating it"),
            Self::StartReplacement(node) => write!(f, "powering the new VM of {node} on"),
            Self::DrawAgain(node) => write!(f, "beginning another new VM for {node}"),
            Self::Replaced(node) => write!(f, "{node} has joined in its new VM"),
            Self::Retire(vm) => write!(f, "shutting out {}, a former VM of a replaced node", vm.id),
            Self::PowerOff(vm) => write!(f, "shutting {} down", vm.id),
            Self::Detach(vm, disk) => write!(f, "taking the disk {} out of {}", disk.uuid, vm.id),
            Self::Destroy(vm) => write!(f, "removing {}", vm.id),
            Self::DeleteDisk(disk) => write!(f, "removing the disk {}", disk.uuid),
            Self::Gone => f.write_str("nothing of the cluster is left"),
        }
    }
}
