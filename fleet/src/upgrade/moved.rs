//! VMs of the deployment that were moved to where its VMs are not looked for. They exist, and never count as gone:
//! their places, and the remedy, in words.

use super::plan::PlannedNode;
use crate::hypervisor::{ErrorKind, PowerState, Result, Vm};

/// Another remedy if a node's VM may be gone. A copy that is moved back would be taken for it, with its content.
pub(super) const IF_COPY: &str =
    "; if it is a copy that backup software has restored, remove it or take its stamp (kaas.stamp) away";

/// The place of a VM that carries the stamp and was not shown among the deployment's. `found` is the answer of
/// [`crate::hypervisor::Hypervisor::may_be_stamped`].
pub(super) fn place(vm: &Vm, found: &Result<()>) -> String {
    match found {
        Ok(()) => format!("{vm} exists, where it is looked for; look again"),
        // It names the folder.
        Err(error) if error.kind == ErrorKind::Refused => error.to_string(),
        Err(_) => {
            format!("{vm} is out of the folders that are searched: move it back, or name its folder in other-folders")
        }
    }
}

/// Whether a VM with the BIOS UUID of one of a node's may be that one: it is not off, or holds the node's disk. Any
/// other one is a replica of backup software.
pub(super) fn may_be_its(node: &PlannedNode, vm: &Vm) -> bool {
    vm.power != PowerState::Off || vm.disk(node.disk.uuid).is_some()
}
