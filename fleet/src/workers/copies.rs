//! VMs elsewhere that have the BIOS UUID of a worker's VM. Powered-off copies, such as replicas of backup software, are ignored.
//! If two may run, neither is taken for the worker.

use super::reason;
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};

/// Why a VM is not used, from all others with its BIOS UUID. `None` if no other one may run.
pub(super) fn not_alone(vm: &Vm, doubles: &[Vm]) -> Option<Reason> {
    let double = doubles.iter().find(|other| other.power != PowerState::Off)?;
    let words = format!(
        "{vm}, which is {} ({}), and {double}, which is {} ({}), have one BIOS UUID: one is a copy of the other, and it is unknown \
         which one is the worker. Neither is changed: remove the copy from the inventory",
        vm.power, vm.reference.id, double.power, double.reference.id
    );
    Some(Reason::new(reason::VM_ODD, words))
}
