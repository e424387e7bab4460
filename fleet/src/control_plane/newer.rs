//! VMs that are newer than the record of their cluster, such as after the journal was restored to an earlier moment without them.

use super::deployment_record::{DeploymentRecord, Node};
use super::inventory::Inventory;
use crate::hypervisor::Vm;

impl Inventory {
    /// VMs that prove this. They have a node's stamp and no record of their creation, or are recorded as begun and must have
    /// become complete later. A VM that is not on and holds no data disk is ignored. An upgrade may have left it, and nothing is
    /// lost with it.
    pub(super) fn newer(&self, kept: &DeploymentRecord) -> Vec<&Vm> {
        let has_outlived = self.has_outlived_its_making(kept);
        let is_newer = |vm: &&Vm| {
            let is_begun = kept.nodes.iter().any(|node| is_half(node, vm));
            !self.has_noted(kept, vm) || (is_begun && has_outlived)
        };
        self.vms.iter().filter(|vm| vm.stamp.is_some() && is_of_use(vm)).filter(is_newer).collect()
    }

    /// Whether its BIOS UUID was recorded, however many VMs have it: copies of a known VM are not newer.
    fn has_noted(&self, kept: &DeploymentRecord, vm: &Vm) -> bool {
        let is_nodes = kept.nodes.iter().any(|node| node.has_noted(vm.uuid()));
        let is_replaced = kept.is_replacement(vm.uuid()) || kept.replaced_vms.contains(&vm.uuid());
        is_nodes || is_replaced || self.upgraded.contains(&vm.uuid()) || kept.is_granted(vm.uuid())
    }

    /// Whether a cluster that has not formed is further than its record.
    ///
    /// No VM is powered on before all of them are recorded as complete. None is begun before an incomplete VM has released its
    /// disk. A violation proves that the VMs that are recorded as begun have changed since.
    ///
    /// A VM that is recorded as powered on proves nothing: another one may be gone since, and is created again. A record that was
    /// restored to the moment between the two is not detected. Then the incomplete VM's disk is retained, and the VM is removed.
    fn has_outlived_its_making(&self, kept: &DeploymentRecord) -> bool {
        let lacks = kept.nodes.iter().any(|node| node.bios_uuid.is_none());
        let was_started =
            |vm: &Vm| kept.nodes.iter().any(|node| node.ever_powered_on && node.bios_uuid == Some(vm.uuid()));
        let is_on = self.vms.iter().any(|vm| vm.stamp.is_some() && vm.power.proves_power_on() && !was_started(vm));
        let halves = self.vms.iter().filter(|vm| is_of_use(vm) && kept.nodes.iter().any(|node| is_half(node, vm)));
        !kept.formed && lacks && (is_on || halves.count() > 1)
    }
}

/// Whether a VM is recorded as begun for a node, and not as complete.
fn is_half(node: &Node, vm: &Vm) -> bool {
    node.bios_uuid.is_none() && node.allocated_uuid == Some(vm.uuid())
}

fn is_of_use(vm: &Vm) -> bool {
    vm.power.proves_power_on() || vm.data_disks().next().is_some()
}
