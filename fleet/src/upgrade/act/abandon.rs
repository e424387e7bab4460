//! Abandons an upgrade: each node is left as it is, and the operator learns what to do with its VMs. It needs nothing
//! to work.

use contract::node::Node;
use contract::swap::Stage;
use uuid::Uuid;

use super::Vms;
use crate::cancel::{Cancelled, unless_cancelled};
use crate::hypervisor::{Absence, Disk, DiskKind, DiskRef, PowerState, Vm};
use crate::upgrade::context::StepContext;
use crate::upgrade::entry::{Entry, disk_of};
use crate::upgrade::journal::Journal;
use crate::upgrade::nodes::{Asked, NodeRequest, Nodes as _};
use crate::upgrade::notice::Notice;
use crate::upgrade::plan::{Action, Plan, PlannedNode, Step, base_of};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::VM_GONE;
use crate::upgrade::step_error::StepError;

impl StepContext<'_> {
    /// Leaves a node as it is. On the new image its swap is made final, so that the next upgrade finds none open. A
    /// failure to act, to read or to wait is reported only: abandoning works with anything broken.
    pub(super) async fn leave(&self, plan: &Plan, journal: &Journal<'_>, index: usize) -> Result<String, Cancelled> {
        // A disk that is attached late would be in a VM that was named to be removed.
        let settled = self.hypervisor.settled().await?;
        let mut left = self.left(plan, journal.entries(), index).await?;
        if let Err(error) = settled {
            left += &format!(
                "; an earlier request may still run, so check again before you remove a VM: {:#}",
                error.source
            );
        }
        Ok(format!("{}; {left}", self.end_swap(plan, &plan.nodes[index]).await))
    }

    /// The same for a dry run. It asks the node for its state only, and does not wait for earlier requests.
    pub(in crate::upgrade) async fn would_leave(
        &self,
        plan: &Plan,
        entries: &[Entry],
        index: usize,
    ) -> Result<String, Cancelled> {
        let left = self.left(plan, entries, index).await?;
        let node = &plan.nodes[index];
        let stays = match unless_cancelled(&self.cancelled, self.nodes.facts(node.address)).await? {
            Ok(facts) => would_end_swap(plan, node, &facts),
            Err(error) => silent(&error),
        };
        Ok(format!("{stays}; {left}"))
    }

    /// The VMs of a node that do not run, and the place of its disk, in words. Changes nothing.
    async fn left(&self, plan: &Plan, entries: &[Entry], index: usize) -> Result<String, Cancelled> {
        let (node, progress) = (&plan.nodes[index], Progress::of(plan, entries));
        let vms = match self.vms().await {
            Ok(vms) => Vms::of(node, vms, progress.noted(index)),
            Err(StepError::Cancelled) => return Err(Cancelled),
            Err(error) => Err(error),
        };
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
        Ok(match vms {
            Ok(vms) => leftovers(&vms, moved, disk_of(entries, index).unwrap_or(&node.disk)),
            Err(error) => format!("look at its VMs: {error}"),
        })
    }

    /// Asks a node for its state, and for the end of its swap. Returns the state in which it stays.
    async fn end_swap(&self, plan: &Plan, node: &PlannedNode) -> String {
        let facts = match self.nodes.facts(node.address).await {
            Ok(facts) => facts,
            Err(error) => return silent(&error),
        };
        let (runs, end) = (facts.image.build(), SwapEnd::of(plan, node, &facts));
        if is_evacuated(node, &facts) && end != SwapEnd::Withdraw {
            let asked = self.nodes.request(node.address, NodeRequest::CancelEvacuation(node.swap)).await;
            (self.watch)(&Notice::Done { note: &format!("{}: {}", node.name, withdrawn("its evacuation", asked)) });
        }
        let swap = match end {
            SwapEnd::Withdraw => {
                let asked = self.nodes.request(node.address, NodeRequest::CancelSwap(node.swap)).await;
                let withdrawn = withdrawn("its swap", asked);
                return format!("it runs {runs} and stays as it is; {withdrawn}");
            }
            SwapEnd::Stay => return format!("it runs {runs} and stays as it is"),
            SwapEnd::IsFinal => return format!("it runs {runs}; its swap is final"),
            SwapEnd::Commit(swap) => swap,
        };
        let committed = match self.nodes.request(node.address, NodeRequest::Commit(swap)).await {
            Ok(Asked::Done) => "its swap is final".to_owned(),
            Ok(Asked::Refused(why)) => format!("its swap stays open: {why}"),
            Ok(Asked::Begun | Asked::Unknown) => "its swap stays open".to_owned(),
            Err(error) => format!("its swap stays open: {error:#}"),
        };
        format!("it runs {runs}; {committed}")
    }
}

/// The end of a node's swap when its upgrade is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwapEnd {
    /// It is prepared only, and is withdrawn.
    Withdraw,
    /// The node is not healthy on the new image, and stays as it is.
    Stay,
    IsFinal,
    /// The swap with this identifier is made final.
    Commit(Uuid),
}

impl SwapEnd {
    /// The end that a node's report asks for.
    fn of(plan: &Plan, node: &PlannedNode, facts: &Node) -> Self {
        let swap = facts.swap.as_ref();
        if swap.is_some_and(|swap| swap.id == node.swap && swap.stage != Stage::Taken) {
            return Self::Withdraw;
        }
        // The image may be the same, and the size another one.
        if facts.image.build != plan.target.image.build || facts.runs_in(node.old) || facts.healthy.is_none() {
            return Self::Stay;
        }
        swap.map_or(Self::IsFinal, |swap| Self::Commit(swap.id))
    }
}

/// Whether a rollback has begun to move a node's work away.
fn is_evacuated(node: &PlannedNode, facts: &Node) -> bool {
    facts.evacuation.as_ref().is_some_and(|evacuation| evacuation.id == node.swap)
}

/// The state of a node that does not answer, in words.
fn silent(error: &anyhow::Error) -> String {
    format!("it does not answer and is not changed: {error:#}")
}

/// The end of a node's swap in words, for a dry run.
fn would_end_swap(plan: &Plan, node: &PlannedNode, facts: &Node) -> String {
    let runs = facts.image.build();
    let (end, evacuation) = (SwapEnd::of(plan, node, facts), "; its evacuation would be withdrawn");
    let evacuation = if is_evacuated(node, facts) && end != SwapEnd::Withdraw { evacuation } else { "" };
    match end {
        SwapEnd::Withdraw => format!("it runs {runs} and stays as it is; its swap would be withdrawn"),
        SwapEnd::Stay => format!("it runs {runs} and stays as it is{evacuation}"),
        SwapEnd::IsFinal => format!("it runs {runs}; its swap is final{evacuation}"),
        SwapEnd::Commit(_) => format!("it runs {runs}; its swap would be made final{evacuation}"),
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
