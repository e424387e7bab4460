//! Decides what comes next: a pure function of what was begun and what exists.

use super::action::Action;
use super::deployment_record::{DeploymentRecord, Lifecycle, Node};
use super::inventory::{Found, Inventory, NodeReport, outliving};
use super::reason;
use super::replacement_record::{ATTEMPTS, Replacement};
use super::wait::Wait;
use crate::hypervisor::{PowerState, Vm};
use crate::nodes::clean;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The actions that are possible now, in this order.
    pub actions: Vec<Action>,
    /// The conditions before the run continues.
    pub waits: Vec<Wait>,
}

impl Next {
    /// Whether there is nothing left to do.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.waits.is_empty()
    }

    /// Whether only the operator can make progress possible.
    pub fn needs_a_person(&self) -> bool {
        self.actions.is_empty() && self.waits.iter().any(|wait| wait.lasting)
    }
}

/// The next actions and waits of a cluster.
pub fn next(kept: &DeploymentRecord, seen: &Inventory) -> Next {
    let mut next = Next::default();
    match kept.lifecycle {
        Lifecycle::Active => up(kept, seen, &mut next),
        Lifecycle::Deleting => down(kept, seen, &mut next),
        Lifecycle::Deleted => return next,
    }
    // A VM that is not shown may hold the disk.
    let unheld = kept.disks_to_delete.iter().filter(|disk| seen.unproved.is_empty() && seen.is_free(disk));
    next.actions.extend(unheld.cloned().map(Action::DeleteDisk));
    // Incomplete VMs, and their blank disks if possible, are removed before another VM is begun.
    next.actions.sort_by_key(|action| matches!(action, Action::CloneVm(_) | Action::Replace(_)));
    if kept.lifecycle == Lifecycle::Deleting && next.is_done() {
        next.actions.push(Action::Gone);
    }
    next
}

fn up(kept: &DeploymentRecord, seen: &Inventory, next: &mut Next) {
    for vm in seen.vms.iter().filter(|vm| !kept.nodes.iter().any(|node| node.owns(vm) || node.has_noted(vm.uuid()))) {
        let words = format!("{vm} carries this deployment's stamp, and is no control-plane node's");
        next.waits.push(Wait::lasting(&vm.name, reason::VM_ODD, words));
    }
    seen.replaced.iter().for_each(|vm| retires(vm, next));
    let mut on = 0;
    for node in &kept.nodes {
        if let Some(open) = kept.replacement.as_ref().filter(|open| open.node == node.name) {
            replaces(kept, open, seen, next);
            continue;
        }
        on += usize::from(if kept.formed { goes_on(kept, node, seen, next) } else { begins(node, seen, next) });
    }
    // All disks of incomplete VMs are detached before another VM is begun, however many rounds that takes. Two incomplete VMs
    // with a disk are taken for VMs that have served (`Inventory::newer`).
    let holds = |node: &Node| matches!(seen.first_vm(node), Found::Half(vm) if vm.data_disks().next().is_some());
    if kept.nodes.iter().any(holds) {
        next.actions.retain(|action| !matches!(action, Action::CloneVm(_)));
    }
    // Nothing is powered on before all VMs exist: until then nothing that is removed was ever in use. A VM that was recorded as
    // complete may be gone.
    let makes = next.actions.iter().any(|action| matches!(action, Action::CloneVm(_)));
    if (makes || kept.nodes.iter().any(|node| node.bios_uuid.is_none())) && !kept.formed {
        next.actions.retain(|action| !matches!(action, Action::PowerOn(_)));
    }
    if on == kept.nodes.len() && next.is_done() {
        formed(kept, seen, next);
    }
}

/// Decides for a node before its cluster has formed. A VM of an interrupted command is not trusted to be complete: it was never
/// on, and is created again. Returns true if the node is on.
fn begins(node: &Node, seen: &Inventory, next: &mut Next) -> bool {
    match seen.first_vm(node) {
        Found::Odd => {
            let words = format!(
                "its VM exists twice, has another stamp, or was not made by this deployment, which has recorded {}: \
                 {} exist, and stay",
                node.noted().map_or_else(|| "none".to_owned(), |noted| noted.to_string()),
                seen.claims(node)
            );
            next.waits.push(Wait::lasting(&node.name, reason::VM_ODD, words));
        }
        Found::Nothing if seen.hidden.contains_key(&node.name) => next.waits.extend(hidden(node, seen)),
        Found::Nothing if node.ever_powered_on => {
            let words = "its VM is gone before the cluster has formed: delete the cluster, and create it again";
            next.waits.push(Wait::lasting(&node.name, reason::VM_GONE, words));
        }
        Found::Nothing => next.actions.push(Action::CloneVm(node.name.clone())),
        Found::Half(vm) => removed(vm, next),
        Found::Vm(vm) if vm.power == PowerState::On && node.ever_powered_on => return true,
        Found::Vm(vm) => powered(node, vm, seen, next),
    }
    false
}

/// Decides for a node of a formed cluster: it is only powered on. Returns true if it is on.
fn goes_on(kept: &DeploymentRecord, node: &Node, seen: &Inventory, next: &mut Next) -> bool {
    match seen.later_vm(node) {
        Found::Vm(vm) if vm.power == PowerState::On => return true,
        Found::Vm(vm) if seen.stale.contains(&vm.uuid()) => {
            next.waits.push(hidden(node, seen).unwrap_or_else(|| stale(node, vm)));
        }
        Found::Vm(vm) if seen.is_noted(kept, vm) && is_cut_off(vm) && copied(vm, seen).is_none() => {
            next.waits.push(cut_off(node, vm));
        }
        Found::Vm(vm) if seen.is_noted(kept, vm) => {
            if vm.power == PowerState::Off {
                next.waits.push(Wait::passing(&node.name, reason::VM_STATE, "its VM is off"));
            }
            powered(node, vm, seen, next);
        }
        Found::Vm(vm) => next.waits.push(unknown(vm)),
        Found::Nothing => {
            let lost = || Wait::lasting(&node.name, reason::VM_GONE, gone(node, seen));
            next.waits.push(hidden(node, seen).unwrap_or_else(lost));
        }
        Found::Half(_) | Found::Odd => {
            let words = format!("several of its VMs have a data disk each: {}", seen.claims(node));
            next.waits.push(Wait::lasting(&node.name, reason::VM_ODD, words));
        }
    }
    false
}

/// A VM from before an upgrade, which may start with the state of the cluster at that time.
fn stale(node: &Node, vm: &Vm) -> Wait {
    let held: Vec<String> = vm.data_disks().map(|disk| clean(&disk.reference.path)).collect();
    let words = format!(
        "{vm}, which is off, holds {}, and not the node's data disk: a backup may have brought it back from before an upgrade. It is not powered \
         on: take it out of the inventory if the node is lost or in another VM; or power it on by hand if what it holds is the node's",
        held.join(", ")
    );
    Wait::lasting(&node.name, reason::VM_ODD, words)
}

/// Whether a VM that is off would come up without a network.
fn is_cut_off(vm: &Vm) -> bool {
    vm.power == PowerState::Off && !vm.adapters.is_empty() && vm.is_fenced()
}

/// An upgrade disconnects a VM before it detaches its data disk, and connects it again in a rollback.
fn cut_off(node: &Node, vm: &Vm) -> Wait {
    let words = format!(
        "{vm}, which is off, holds its data disk, and none of its network adapters is connected at power-on: an upgrade that is not done, or was \
         abandoned, leaves it so. It is not powered on: go on with the upgrade if there is one; else see that no other VM of the node runs, \
         and set its adapters to connect at power-on by hand: it is powered on the next time"
    );
    Wait::lasting(&node.name, reason::VM_STATE, words)
}

/// The wait of a node without a readable VM, or with only a VM from before an upgrade. An unreadable VM may be its own. The
/// message neither says that the node is gone nor advises powering the earlier VM on.
fn hidden(node: &Node, seen: &Inventory) -> Option<Wait> {
    let why = seen.hidden.get(&node.name)?;
    let words = format!("the state of its VM is unknown: {why}");
    Some(Wait::passing(&node.name, reason::VM_ODD, words))
}

/// States that a control-plane node is lost, and what the operator does.
const LOST: &str = "the node is lost. Keep the other control-plane nodes running. The command replace-node \
                    replaces it";

/// Why a node of a formed cluster runs nowhere. If VMs of it exist, its data disk may have been on its way between them, such as
/// in an interrupted upgrade. Then the message does not call the node lost.
fn gone(node: &Node, seen: &Inventory) -> String {
    let bare: Vec<String> = seen.vms.iter().filter(|vm| node.owns(vm)).map(Vm::to_string).collect();
    if bare.is_empty() {
        return format!("none of its VMs exists: {LOST}");
    }
    let disk = node.own_disk().map(|disk| format!(", {disk},")).unwrap_or_default();
    format!(
        "none of its VMs holds its data disk, {}: it may have been on its way from one to the other. Look for the disk{disk} where the \
         VMs are, attach it to the one that is to run, and power that on. If the disk is gone, remove these VMs: {LOST}",
        bare.join(", ")
    )
}

/// A VM that is already on was powered on before that was recorded.
fn powered(node: &Node, vm: &Vm, seen: &Inventory, next: &mut Next) {
    // The message is about the node: an upgrade has given its VM another name.
    let of_node = |wait: Wait| Wait { node: Some(node.name.clone()), ..wait };
    if let Some(wait) = copied(vm, seen) {
        next.waits.push(of_node(wait));
        return;
    }
    match vm.power {
        PowerState::Off | PowerState::On => next.actions.push(Action::PowerOn(node.name.clone())),
        PowerState::Suspended | PowerState::Unknown => next.waits.push(of_node(odd_power(vm))),
    }
}

fn odd_power(vm: &Vm) -> Wait {
    Wait::passing(&vm.name, reason::VM_STATE, format!("its VM is {}", vm.power))
}

/// Decides for a node that is being replaced.
fn replaces(kept: &DeploymentRecord, open: &Replacement, seen: &Inventory, next: &mut Next) {
    let node = &open.node;
    let is_on = |node: &Node| matches!(seen.later_vm(node), Found::Vm(vm) if vm.power == PowerState::On);
    if let Some(other) = kept.nodes.iter().find(|other| other.name != *node && !is_on(other)) {
        let words = format!(
            "it is being replaced, and {} does not run either: without both, etcd has no quorum. Bring {0} back; if it is lost for \
             good, restore the cluster from a snapshot",
            other.name
        );
        next.waits.push(Wait::lasting(node, reason::NO_QUORUM, words));
        return;
    }
    let Some(Ok(ready)) = &seen.ready else {
        let words = match &seen.ready {
            Some(Err(words)) => words.as_str(),
            _ => "no other node gives credentials",
        };
        let words = format!("it is being replaced, and the cluster does not answer: {words}");
        next.waits.push(Wait::passing(node, reason::NO_QUORUM, words));
        return;
    };
    // It may have joined while the hypervisor was away, and the quorum may need it: it goes only while all others are Ready.
    let are_others_ready = kept.nodes.iter().all(|other| other.name == *node || ready.contains(&other.name));
    let late = are_others_ready && open.ends().is_some_and(|ends| seen.now >= ends);
    let vm = seen.vms.iter().find(|vm| vm.uuid() == open.allocated_uuid && vm.stamp.is_some());
    match vm {
        Some(vm) if open.started && vm.power == PowerState::On && ready.contains(node) => {
            next.actions.push(Action::Replaced(node.clone()));
        }
        // It was gone before it joined.
        None if open.admitted.is_some() && open.attempt < ATTEMPTS => {
            next.actions.push(Action::DrawAgain(node.clone()));
        }
        None if open.admitted.is_some() => {
            let words = format!(
                "{ATTEMPTS} new VMs were made for it, and none has joined: see the consoles of the other nodes, and give the \
                 command again"
            );
            next.waits.push(Wait::lasting(node, reason::REPLACEMENT_BLOCKED, words));
        }
        None => next.actions.push(Action::Replace(node.clone())),
        Some(vm) if open.admitted.is_none() || (late && vm.power == PowerState::Off) => removed(vm, next),
        Some(vm) => match vm.power {
            PowerState::Off => next.actions.push(Action::StartReplacement(node.clone())),
            PowerState::On if !open.started => next.actions.push(Action::StartReplacement(node.clone())),
            PowerState::On if late => next.actions.push(Action::PowerOff(vm.reference.clone())),
            PowerState::On => {
                let words = format!(
                    "its new VM {vm} is on, and has not joined yet: it is number {} of {ATTEMPTS}, and has time until {}",
                    open.attempt,
                    open.ends_at().unwrap_or_default()
                );
                next.waits.push(Wait::passing(node, reason::JOINING, words));
            }
            PowerState::Suspended | PowerState::Unknown => next.waits.push(odd_power(vm)),
        },
    }
}

/// Decides for a VM of a node that was replaced, and that has returned. One whose host does not answer is left alone.
fn retires(vm: &Vm, next: &mut Next) {
    if vm.stamp.is_some() && vm.power != PowerState::Unknown {
        next.actions.push(Action::Retire(vm.reference.clone()));
    }
}

/// The nodes are on. The cluster has formed once each of them gives its deployer credentials, and is Ready.
fn formed(kept: &DeploymentRecord, seen: &Inventory, next: &mut Next) {
    if let Some((node, words)) = seen.strange_authority(kept) {
        let words = format!(
            "{words}: no node is asked. Another client has changed what it shows through the hypervisor (guestinfo), or it is another \
             cluster's"
        );
        next.waits.push(Wait::lasting(&node, reason::AUTHORITY, words));
        return;
    }
    let gives = |node: &&Node| matches!(seen.said.get(&node.name), Some(NodeReport::Formed));
    for node in &kept.nodes {
        let words = match seen.said.get(&node.name) {
            Some(NodeReport::Formed) => continue,
            // One node of a formed cluster is enough.
            _ if kept.formed && kept.nodes.iter().any(|node| gives(&node)) => continue,
            Some(NodeReport::Nothing(words)) => words.as_str(),
            None => "the command has not asked it yet",
        };
        next.waits.push(Wait::passing(&node.name, reason::FORMING, words));
    }
    match &seen.ready {
        None => {}
        Some(Err(words)) => {
            let first = kept.nodes.first().map(|node| node.name.as_str()).unwrap_or_default();
            next.waits.push(Wait { node: None, ..Wait::passing(first, reason::API, words) });
        }
        Some(Ok(ready)) => {
            for node in kept.nodes.iter().filter(|node| !ready.contains(&node.name)) {
                next.waits.push(Wait::passing(&node.name, reason::NOT_READY, "its node is not Ready yet"));
            }
        }
    }
    if next.is_done() && !kept.formed {
        next.actions.push(Action::Formed);
    }
}

fn down(kept: &DeploymentRecord, seen: &Inventory, next: &mut Next) {
    let mut known = Vec::new();
    next.waits.extend(seen.unproved.iter().cloned());
    for vm in &seen.restamped {
        let words = format!(
            "{vm} was made for the cluster and holds a disk of it, and carries another deployment's stamp: it stays, and \
             the disk with it"
        );
        next.waits.push(Wait::lasting(&vm.name, reason::VM_ODD, words));
    }
    for vm in &seen.vms {
        // A VM that is a node's by its identity alone was restamped, or lost its stamp: the operator decides whose it is.
        if vm.stamp.is_none() || kept.nodes.iter().any(|node| node.has_noted(vm.uuid()) && !node.owns(vm)) {
            let words = format!("{vm} does not carry the stamp that it was made with: it stays");
            next.waits.push(Wait::lasting(&vm.name, reason::VM_ODD, words));
            continue;
        }
        if !seen.is_noted(kept, vm) {
            next.waits.push(unknown(vm));
            continue;
        }
        if let Some(wait) = copied(vm, seen) {
            next.waits.push(wait);
            continue;
        }
        known.push(vm);
    }
    // Checked before the first VM is powered off: otherwise the cluster would be off as long as a backup takes, and there is no
    // rollback.
    let snapshots: Vec<Wait> = known.iter().filter(|vm| !vm.snapshots.is_empty()).map(|vm| snapshots(vm)).collect();
    if !snapshots.is_empty() {
        next.waits.extend(snapshots);
        return;
    }
    for vm in known {
        match vm.power {
            PowerState::On => next.actions.push(Action::PowerOff(vm.reference.clone())),
            _ => removed(vm, next),
        }
    }
}

/// Why a VM is not changed: it was copied, or whether it was is unknown.
fn copied(vm: &Vm, seen: &Inventory) -> Option<Wait> {
    if let Some(double) = seen.double_of(vm) {
        return Some(doubled(vm, double));
    }
    let why = seen.unclear.get(&vm.uuid())?;
    let words = format!(
        "whether another VM has the BIOS UUID of {vm} is unknown, so it is neither powered on nor removed: {why}"
    );
    Some(Wait::passing(&vm.name, reason::VM_ODD, words))
}

/// Two VMs with one BIOS UUID: the one in the searched folders may be a copy, and the other one the node that runs.
fn doubled(vm: &Vm, double: &Vm) -> Wait {
    let words = format!(
        "{vm}, which is {} ({}), and {double}, which is {} ({}), have one BIOS UUID: one is a copy of the other, and it is unknown which one \
         is the node. Neither is powered on or removed: take the copy out of the inventory, or power on by hand the one that is the node, \
         and run the command again",
        vm.power, vm.reference.id, double.power, double.reference.id
    );
    Wait::lasting(&vm.name, reason::VM_ODD, words)
}

fn snapshots(vm: &Vm) -> Wait {
    let names: Vec<String> = vm.snapshots.iter().map(|name| clean(name)).collect();
    let words = format!(
        "{vm} has snapshots ({}), which may name disks that would go with it: nothing is powered off while there are some",
        names.join(", ")
    );
    Wait::passing(&vm.name, reason::VM_SNAPSHOT, words)
}

/// A VM with the stamp and without a record. Each account that may change a VM's settings can write the stamp, or copy it with
/// the VM.
fn unknown(vm: &Vm) -> Wait {
    let disks: Vec<String> = vm.data_disks().map(|disk| clean(&disk.reference.path)).collect();
    let holds =
        if disks.is_empty() { "no data disk".to_owned() } else { format!("the data disk {}", disks.join(", ")) };
    let node = vm.stamp.as_ref().map(|stamp| clean(&stamp.node)).unwrap_or_default();
    let words = format!(
        "{vm}, which is {} and holds {holds}, carries this deployment's stamp as {node}, and no record shows that it was created \
         alone: it stays, unless it is named by its BIOS UUID or the stamp is taken away",
        vm.power
    );
    Wait::lasting(&vm.name, reason::VM_UNNOTED, words)
}

/// Removes a VM that is off. Only its system disk is removed with it.
fn removed(vm: &Vm, next: &mut Next) {
    if vm.power != PowerState::Off {
        next.waits.push(odd_power(vm));
        return;
    }
    next.actions.push(match outliving(vm) {
        Some(disk) => Action::Detach(vm.reference.clone(), disk.clone()),
        None => Action::Destroy(vm.reference.clone()),
    });
}
