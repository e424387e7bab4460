//! VMs that are newer than what is kept of their cluster, as where the journal was turned back to an earlier moment and they were not.

use super::deployment_record::{DeploymentRecord, Node};
use super::inventory::Inventory;
use crate::hypervisor::Vm;

impl Inventory {
    /// The VMs that say so: those that carry a node's stamp and that nothing is noted of having made, and those that are noted as begun and
    /// can have been made whole only after that. One that is not seen to run and holds no data disk counts for nothing: an upgrade may have left
    /// it, and nothing is lost with it.
    pub(super) fn newer(&self, kept: &DeploymentRecord) -> Vec<&Vm> {
        let has_outlived = self.has_outlived_its_making(kept);
        let is_newer = |vm: &&Vm| {
            let is_begun = kept.nodes.iter().any(|node| is_half(node, vm));
            !self.has_noted(kept, vm) || (is_begun && has_outlived)
        };
        self.vms.iter().filter(|vm| vm.stamp.is_some() && is_of_use(vm)).filter(is_newer).collect()
    }

    /// Whether its BIOS UUID was noted, however many have it: copies of a VM that is known are no newer one.
    fn has_noted(&self, kept: &DeploymentRecord, vm: &Vm) -> bool {
        let is_nodes = kept.nodes.iter().any(|node| node.has_noted(vm.uuid()));
        is_nodes || self.upgraded.contains(&vm.uuid()) || kept.is_granted(vm.uuid())
    }

    /// Whether more has become of a cluster that has not formed than is noted. No VM is powered on before all of them are noted as whole, and
    /// none is begun before half of another one has given its disk away: so none of those that are noted as begun is as whoever noted that
    /// has left it. One that is noted as powered on proves nothing: another one may have gone after that, and is made again. So none is told where
    /// what is kept was turned back to the moment between the two: the half's disk is left then, and its VM goes.
    fn has_outlived_its_making(&self, kept: &DeploymentRecord) -> bool {
        let lacks = kept.nodes.iter().any(|node| node.bios_uuid.is_none());
        let was_started =
            |vm: &Vm| kept.nodes.iter().any(|node| node.ever_powered_on && node.bios_uuid == Some(vm.uuid()));
        let is_on = self.vms.iter().any(|vm| vm.stamp.is_some() && vm.power.proves_power_on() && !was_started(vm));
        let halves = self.vms.iter().filter(|vm| is_of_use(vm) && kept.nodes.iter().any(|node| is_half(node, vm)));
        !kept.formed && lacks && (is_on || halves.count() > 1)
    }
}

/// Whether a VM is noted as begun for a node, and not as whole.
fn is_half(node: &Node, vm: &Vm) -> bool {
    node.bios_uuid.is_none() && node.allocated_uuid == Some(vm.uuid())
}

fn is_of_use(vm: &Vm) -> bool {
    vm.power.proves_power_on() || vm.data_disks().next().is_some()
}
