//! Abandons an upgrade: each node is left as it is, and the operator learns what to do with its VMs. It needs nothing
//! to work.

use contract::swap::Stage;

use super::{Vms, place};
use crate::cancel::Cancelled;
use crate::hypervisor::{Absence, Disk, DiskKind, DiskRef, PowerState, Vm};
use crate::upgrade::context::StepContext;
use crate::upgrade::journal::Journal;
use crate::upgrade::nodes::{Asked, Nodes as _};
use crate::upgrade::notice::Notice;
use crate::upgrade::plan::{Action, Plan, PlannedNode, Step, base_of};
use crate::upgrade::reason::VM_GONE;
use crate::upgrade::step_error::StepError;

impl StepContext<'_> {
    /// Leaves a node as it is. On the new image its swap is made final, so that the next upgrade finds none open. A
    /// failure to act, to read or to wait is reported only: abandoning works with anything broken.
    ///
    /// # Errors
    /// The command was asked to end while it waited.
    pub(super) async fn leave(&self, plan: &Plan, journal: &Journal<'_>, index: usize) -> Result<String, Cancelled> {
        let node = &plan.nodes[index];
        // A disk that is attached late would be in a VM that was named to be removed.
        let settled = self.hypervisor.settled().await?;
        let vms = match self.vms().await {
            Ok(vms) => Vms::of(node, vms, journal.progress().noted(index)),
            Err(StepError::Cancelled) => return Err(Cancelled),
            Err(error) => Err(error),
        };
        let progress = journal.progress();
        let mut moved = match &vms {
            Ok(vms) if vms.old.is_none() => self.old_is_not_moved(plan, node).await,
            _ => Ok(()),
        };
        let is_new_unseen = vms.as_ref().is_ok_and(|vms| vms.new.is_none());
        let is_removed = progress.is_begun(Step::of(Action::DestroyNew, index));
        if let Some(new) = progress.noted(index).filter(|_| moved.is_ok() && is_new_unseen && !is_removed) {
            let nodes = [base_of(&node.new_name)];
            let absence = self.hypervisor.absence(new, &nodes, progress.new_seen(index));
            moved = match self.look(absence).await {
                Ok(Absence::Unknown(why)) => Err(StepError::elsewhere(
                    VM_GONE,
                    format!("{} ({new}) is not shown, and may exist: {why}", node.new_name),
                )),
                gone => gone.map(drop),
            };
        }
        let moved = match moved {
            Ok(()) => None,
            Err(StepError::Cancelled) => return Err(Cancelled),
            Err(error) => Some(error.to_string()),
        };
        let mut left = match vms {
            Ok(vms) => leftovers(&vms, moved, &place(journal, index)),
            Err(error) => format!("look at its VMs: {error}"),
        };
        if let Err(error) = settled {
            left += &format!(
                "; an earlier request may still run, so check again before you remove a VM: {:#}",
                error.source
            );
        }
        Ok(format!("{}; {left}", self.end_swap(plan, node).await))
    }

    /// Asks a node for its state, and for the end of its swap. Returns the state in which it stays.
    async fn end_swap(&self, plan: &Plan, node: &PlannedNode) -> String {
        let facts = match self.nodes.facts(node.address).await {
            Ok(facts) => facts,
            Err(error) => return format!("it does not answer and is not changed: {error:#}"),
        };
        let runs = facts.image.build();
        if facts.swap.as_ref().is_some_and(|swap| swap.id == node.swap && swap.stage != Stage::Taken) {
            let withdrawn = withdrawn("its swap", self.nodes.cancel_swap(node.address, node.swap).await);
            return format!("it runs {runs} and stays as it is; {withdrawn}");
        }
        // A rollback may have begun to move its work away.
        if facts.evacuation.as_ref().is_some_and(|evacuation| evacuation.id == node.swap) {
            let asked = self.nodes.cancel_evacuation(node.address, node.swap).await;
            (self.watch)(&Notice::Done { note: &format!("{}: {}", node.name, withdrawn("its evacuation", asked)) });
        }
        // The image may be the same, and the size another one.
        if facts.image.build != plan.target.image.build || facts.runs_in(node.old) || facts.healthy.is_none() {
            return format!("it runs {runs} and stays as it is");
        }
        let Some(swap) = facts.swap else { return format!("it runs {runs}; its swap is final") };
        let committed = match self.nodes.commit(node.address, swap.id).await {
            Ok(Asked::Done) => "its swap is final".to_owned(),
            Ok(Asked::Refused(why)) => format!("its swap stays open: {why}"),
            Ok(Asked::Begun | Asked::Unknown) => "its swap stays open".to_owned(),
            Err(error) => format!("its swap stays open: {error:#}"),
        };
        format!("it runs {runs}; {committed}")
    }
}

/// How a request to withdraw something has ended, in words.
pub(in crate::upgrade) fn withdrawn(what: &str, asked: anyhow::Result<Asked>) -> String {
    match asked {
        Ok(Asked::Done | Asked::Begun) => format!("{what} is withdrawn"),
        Ok(Asked::Refused(why)) => format!("{what} stays open: {why}"),
        Ok(Asked::Unknown) => format!("{what} stays open: its image does not know how to withdraw it"),
        Err(error) => format!("{what} stays open: {error:#}"),
    }
}

/// The operator's work with the VMs of a node that do not run: remove those that are off and hold nothing. A hypervisor
/// may delete attached disks with their VM. `moved` says where the old VM is that is out of sight.
fn leftovers(vms: &Vms, moved: Option<String>, disk: &DiskRef) -> String {
    let all = || vms.old.iter().chain(&vms.new).chain(&vms.others);
    // An unreadable journal has no notes: the new VM is among the strays then.
    let strays = || vms.strays.iter().filter(|vm| vm.power != PowerState::On);
    let idle = || all().filter(|vm| vm.power != PowerState::On);
    let mut told: Vec<String> = idle().filter_map(|vm| needed(vm, disk)).collect();
    let left: Vec<String> = idle().filter(|vm| needed(vm, disk).is_none()).map(Vm::to_string).collect();
    if !left.is_empty() {
        told.push(format!("left: {}", left.join(", ")));
    }
    let unnoted = |vm: &Vm| {
        format!("{vm} carries the stamp of its swap, and no record shows that it was created: check who owns it")
    };
    told.extend(strays().map(|vm| needed(vm, disk).unwrap_or_else(|| unnoted(vm))));
    // Its disks were not looked at.
    let is_all_seen = moved.is_none();
    told.extend(moved);
    if told.is_empty() {
        told.push("it has no other VM".to_owned());
    }
    if is_all_seen && all().chain(&vms.strays).all(|vm| vm.disk(disk.uuid).is_none()) {
        told.push(format!("no VM holds its disk {} at {}", disk.uuid, disk.path));
    }
    told.join("; ")
}

/// The work on a VM that does not run and must not be removed as it is. `None` if it may be removed.
fn needed(vm: &Vm, disk: &DiskRef) -> Option<String> {
    let power = vm.power;
    if vm.disk(disk.uuid).is_some() {
        let connect = if vm.is_fenced() { "connect its network adapters and " } else { "" };
        return Some(format!("{vm} holds the node's disk and is {power}: {connect}power it on, never remove it"));
    }
    let held = held(vm);
    if !held.is_empty() {
        return Some(format!("{vm} holds the disk {}: detach it before the VM is removed", held.join(", ")));
    }
    (power != PowerState::Off).then(|| format!("{vm} is {power}: make sure what it is before it is removed"))
}

/// The paths of a VM's disks except its own system disk.
pub(in crate::upgrade) fn held(vm: &Vm) -> Vec<&str> {
    let others = vm.disks.iter().filter(|disk| disk.kind != DiskKind::System);
    others.map(|Disk { reference, .. }| &*reference.path).collect()
}
