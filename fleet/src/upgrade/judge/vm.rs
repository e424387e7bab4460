//! Whether the VM that a node runs in is the deployment's, and can be swapped.

use contract::node::Node;

use super::Judged;
use crate::hypervisor::{DiskKind, PowerState, Vm, named_twice};
use crate::upgrade::cluster_seen::SeenNode;
use crate::upgrade::inventory::Inventory;
use crate::upgrade::plan::{Options, is_there, new_name};
use crate::upgrade::refusal as codes;
use crate::upgrade::target::Target;

pub(super) fn judge(
    judged: &mut Judged,
    inventory: &Inventory,
    node: &SeenNode,
    facts: &Node,
    (target, options): (&Target, &Options),
) {
    let Some(vm) = its_vm(judged, inventory, node, facts) else { return };
    let refusals = judged.refusals.len();
    match vm.power {
        PowerState::On => {}
        PowerState::Off => judged.refuse(
            codes::VM_POWER,
            &node.name,
            format!("the node answers, yet its VM {} is off: a copy of it runs somewhere", vm.name),
        ),
        power => judged.refuse(codes::VM_POWER, &node.name, format!("its VM {} is {power}", vm.name)),
    }
    disks(judged, node, vm);
    if !vm.snapshots.is_empty() {
        let reason = format!(
            "its VM {} has the snapshots {}: a disk in a snapshot cannot be detached; delete them first",
            vm.name,
            vm.snapshots.join(", ")
        );
        judged.refuse(codes::VM_SNAPSHOT, &node.name, reason);
    }
    if !vm.tasks.is_empty() {
        let reason =
            format!("its VM {} is being worked on ({}); wait until that has ended", vm.name, vm.tasks.join(", "));
        judged.refuse(codes::VM_TASK, &node.name, reason);
    }
    if vm.adapters.is_empty() {
        judged.refuse(codes::VM_ADAPTER, &node.name, format!("its VM {} has no network adapter", vm.name));
    }
    let (new, is_there) = (new_name(&vm.name, target, options), is_there(facts, Some(vm), target, options));
    if !is_there && inventory.vms.iter().any(|vm| vm.name == new) {
        let reason = format!("there is a VM {new} already; remove it if it is not needed");
        judged.refuse(codes::VM_NAME, &node.name, reason);
    }
    for (code, reason) in inventory.kept.get(&vm.uuid()).into_iter().flatten().filter(|_| !is_there) {
        judged.refuse(code, &node.name, format!("the data disk of its VM {}: {reason}", vm.name));
    }
    if judged.refusals.len() == refusals
        && let Some(disk) = vm.data_disks().next()
    {
        judged.holds(&node.name, format!("VM {vm}, data disk {}", disk.reference.uuid));
        if let Some(size) = options.size.filter(|size| !is_there && vm.size != Some(*size)) {
            let has = vm.size.map_or_else(|| "what is not known".to_owned(), |size| size.to_string());
            judged.holds(&node.name, format!("its VM has {has}, and the new one gets {size}"));
        }
    }
}

/// The one VM with the BIOS UUID that the node says, which carries the deployment's stamp. A second one that is off and
/// holds none of its data disks is a replica of backup software, and does not count.
fn its_vm<'i>(judged: &mut Judged, inventory: &'i Inventory, node: &SeenNode, facts: &Node) -> Option<&'i Vm> {
    let holder = facts.holder.map_or_else(|| "none".to_owned(), |holder| holder.to_string());
    if let Some(reason) = named_twice(inventory.vms.iter().chain(&inventory.others), facts.holder) {
        judged.refuse(codes::VM_TWICE, &node.name, reason);
        return None;
    }
    let own = inventory.vms_of(facts.holder);
    let holds_its =
        |other: &Vm| own.iter().flat_map(|vm| vm.data_disks()).any(|disk| other.disk(disk.reference.uuid).is_some());
    let may_be = |other: &Vm| own.is_empty() || other.power != PowerState::Off || holds_its(other);
    let others = inventory.others.iter().filter(|vm| vm.is_named(facts.holder) && may_be(vm));
    let others: Vec<&Vm> = others.collect();
    let vm = match (own.as_slice(), others.as_slice()) {
        ([vm], []) => *vm,
        ([], []) => {
            let reason = format!("the hypervisor has no VM with the BIOS UUID {holder}; is it the right hypervisor?");
            judged.refuse(codes::VM_UNKNOWN, &node.name, reason);
            return None;
        }
        ([], [vm]) => {
            if let Some(place) = inventory.moved.get(&vm.uuid()) {
                let reason = format!("its VM is not where the deployment's VMs are looked for: {place}");
                judged.refuse(codes::VM_MOVED, &node.name, reason);
                return None;
            }
            // The node itself says which VM is its: its administrator learns no names of other VMs from that.
            log::warn!("{} says that it is the VM {vm}, which is not stamped as this deployment's", node.name);
            let reason = format!("its VM, by the BIOS UUID {holder}, is not stamped as this deployment's");
            judged.refuse(codes::VM_NOT_OURS, &node.name, reason);
            return None;
        }
        _ => {
            let (own_too, strange): (Vec<&Vm>, Vec<&Vm>) =
                others.iter().copied().partition(|vm| vm.is_of(inventory.deployment));
            for vm in strange {
                log::warn!("{} says that it is the VM {vm}, which is not stamped as this deployment's", node.name);
            }
            let count = own.len() + others.len();
            let names: Vec<&str> = own.iter().chain(&own_too).map(|vm| &*vm.name).collect();
            let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let reason = format!("{count} VMs have the same BIOS UUID {holder}{names}: one is a copy of the other");
            judged.refuse(codes::VM_TWICE, &node.name, reason);
            return None;
        }
    };
    if let Some(stamp) = vm.stamp.as_ref().filter(|stamp| stamp.node != node.name) {
        let reason = format!("its VM {vm} is stamped as the node {}'s", stamp.node);
        judged.refuse(codes::VM_NOT_OURS, &node.name, reason);
        return None;
    }
    Some(vm)
}

fn disks(judged: &mut Judged, node: &SeenNode, vm: &Vm) {
    let data = vm.data_disks().count();
    if data != 1 {
        let reason = format!("its VM {} holds {data} data disks; it must be exactly one", vm.name);
        judged.refuse(codes::VM_DISKS, &node.name, reason);
    }
    let foreign: Vec<&str> =
        vm.disks.iter().filter(|disk| disk.kind == DiskKind::Foreign).map(|disk| &*disk.reference.path).collect();
    if !foreign.is_empty() {
        let reason = format!(
            "its VM {} holds disks that are not the appliance's ({}): move the pods that use these volumes away first",
            vm.name,
            foreign.join(", ")
        );
        judged.refuse(codes::VM_DISKS, &node.name, reason);
    }
    for disk in vm.data_disks() {
        if let Some(parent) = &disk.parent {
            let reason = format!(
                "the data disk of its VM {} is a difference to {parent}, made by a snapshot; delete or consolidate it first",
                vm.name
            );
            judged.refuse(codes::VM_SNAPSHOT, &node.name, reason);
        }
    }
}
