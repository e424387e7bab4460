//! VMs that are newer than the record of their pool, such as after its journals were restored to an earlier moment without them.

use std::fmt;

use super::inventory::Inventory;
use super::worker_record::{State, WorkerRecord};
use crate::hypervisor::Vm;

/// One of them, for messages.
pub(crate) struct Newer<'a>(pub(crate) &'a Vm);

impl fmt::Display for Newer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is newer than what is kept, which does not know that it was made: nothing is done meanwhile",
            self.0
        )
    }
}

impl Inventory {
    /// VMs that prove this. They carry the pool's stamp and no record has their worker, or are on while only their beginning is
    /// recorded. No VM is powered on before it is recorded as complete.
    pub(super) fn newer(&self, machines: &[WorkerRecord]) -> Vec<&Vm> {
        let is_unknown =
            |vm: &Vm| vm.stamp.is_some() && !machines.iter().any(|it| it.owns(vm) || it.noted() == Some(vm.uuid()));
        let has_outlived = |vm: &Vm| {
            let is_half = |it: &WorkerRecord| it.state == State::Provisioning && it.bios_uuid.is_none() && it.owns(vm);
            vm.power.proves_power_on() && machines.iter().any(is_half)
        };
        self.vms.iter().filter(|&vm| is_unknown(vm) || has_outlived(vm)).collect()
    }
}
