//! VMs elsewhere that have the BIOS UUID of a worker's VM. What is off there is none that matters, such as a replica that backup software
//! keeps; of two of which the other one may run nobody can say which is the worker.

use super::reason;
use crate::hypervisor::{PowerState, Vm};
use crate::upgrade::Reason;

/// Why nothing follows from a VM, by all others that have its BIOS UUID; none if no other one may run.
pub(super) fn not_alone(vm: &Vm, doubles: &[Vm]) -> Option<Reason> {
    let double = doubles.iter().find(|other| other.power != PowerState::Off)?;
    let words = format!(
        "{vm}, which is {} ({}), and {double}, which is {} ({}), have one BIOS UUID: one is a copy of the other, and nobody can say \
         which one is the worker. Both are left alone: take the copy out of the inventory",
        vm.power, vm.reference.id, double.power, double.reference.id
    );
    Some(Reason::new(reason::VM_ODD, words))
}
