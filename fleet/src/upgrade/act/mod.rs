//! The steps themselves. Each looks first, then acts, and reports whether it changed anything. So it can be taken again
//! after a crash at any point.

mod abandon;
mod clone;
mod copy;
mod evacuate;
mod failure_attribution;
mod failure_threshold;
mod gate;
mod ill_first;
mod node;
mod proof;
mod reach;
mod vm;

use uuid::Uuid;

use super::context::StepContext;
use super::entry::{Direction, datastore_of, disk_of};
use super::journal::Journal;
use super::kept_copy::KeptCopy;
use super::nodes::Nodes as _;
use super::plan::{Action, Plan, PlannedNode, Step};
use super::progress::{Progress, Which};
use super::reason;
use super::refusal::NODE_NOT_READY;
use super::step_error::StepError;
use crate::hypervisor::{DiskRef, PowerState, Vm};
use crate::nodes::clean;

pub(super) use abandon::{held, withdrawn};
pub(super) use proof::old_of;

type Taken = Result<String, StepError>;

impl StepContext<'_> {
    /// Takes a step and says what it changed or found.
    pub(super) async fn act(&self, plan: &Plan, journal: &Journal<'_>, step: Step) -> Result<StepOutcome, StepError> {
        let Some(index) = step.node else {
            return Ok(StepOutcome::note(match step.action {
                Action::Verify => self.verify(plan).await?,
                Action::Snapshot => self.snapshot(plan).await?,
                Action::Check => self.check(plan, &journal.progress()).await?,
                other => return Err(misplaced(other)),
            }));
        };
        if step.action == Action::Keep {
            return Ok(StepOutcome::note(self.leave(plan, journal, index).await?));
        }
        if step.action == Action::DeleteCopy {
            return self.delete_copies(journal, index).await;
        }
        let (node, progress) = (&plan.nodes[index], journal.progress());
        let vms = Vms::of(node, self.vms().await?, progress.noted(index))?.without_strays()?;
        if let Some(did) = self.replacement(plan, node, &vms, step, &progress).await? {
            return Ok(did);
        }
        let unseen = progress.made(index).filter(|_| vms.new.is_none() && proof::goes_by_new(step, &progress));
        if let Some(made) = unseen {
            self.is_gone(plan, node, (&node.new_name, made), progress.new_seen(index)).await?;
        }
        if step.action == Action::CloneVm {
            let drawn = progress.noted(index).ok_or_else(|| misplaced(step.action))?;
            let (note, vm) = self.clone_vm(plan, node, &vms, drawn).await?;
            return Ok(StepOutcome { vm: Some(vm), ..StepOutcome::note(note) });
        }
        if step.action == Action::Copy {
            return self.copy(node, &self.present(journal, index).await?).await;
        }
        self.act_on(plan, journal, step, &vms).await.map(StepOutcome::note)
    }

    /// Takes a step of a node in its VMs.
    async fn act_on(&self, plan: &Plan, journal: &Journal<'_>, step: Step, vms: &Vms) -> Taken {
        let Some(index) = step.node else { return Err(misplaced(step.action)) };
        let node = &plan.nodes[index];
        match step.action {
            Action::Prepare => self.prepare(plan, node, vms.old_vm()?).await,
            Action::ShutDown => self.shut_down_old(plan, node, vms, &journal.progress()).await,
            Action::StopOld => self.stop_old(plan, index, vms, &journal.progress()).await,
            Action::Fence => self.fence(vms.old_vm()?).await,
            Action::Detach => self.detach(node, vms.old_vm()?, &place(journal, index)).await,
            Action::Attach => self.attach(node, vms.new_vm()?, &self.present(journal, index).await?).await,
            Action::PowerOn => self.power_on(node, vms.new_vm()?).await,
            Action::Gate => self.gate_new(plan, node, vms.new_vm()?, &journal.progress()).await,
            Action::Cancel => self.cancel(node, vms).await,
            Action::AttachOld => self.attach(node, vms.old_vm()?, &self.present(journal, index).await?).await,
            Action::ReconnectOld => self.reconnect(node, vms.old_vm()?).await,
            Action::PowerOnOld => self.power_on(node, vms.old_vm()?).await,
            Action::GateOld => self.gate_old(plan, index, vms, &journal.progress()).await,
            Action::EvacuateNew => self.evacuate(plan, node, vms.new.as_ref(), &journal.progress()).await,
            Action::StopNew | Action::FenceNew | Action::DetachNew => {
                let Some(new) = &vms.new else { return Ok("it does not exist".to_owned()) };
                match step.action {
                    Action::StopNew => self.stop_new(plan, node, new, &journal.progress()).await,
                    Action::FenceNew => self.fence(new).await,
                    _ => self.detach(node, new, &place(journal, index)).await,
                }
            }
            Action::DestroyNew => self.destroy_new(node, vms).await,
            Action::Commit => self.commit(node).await,
            Action::DestroyOld => self.destroy_old(plan, node, vms).await,
            Action::Verify
            | Action::Snapshot
            | Action::Check
            | Action::Keep
            | Action::CloneVm
            | Action::Copy
            | Action::DeleteCopy => Err(misplaced(step.action)),
        }
    }

    /// The deployment's VMs as they are now. Ends early if the command is asked to end.
    pub(super) async fn vms(&self) -> Result<Vec<Vm>, StepError> {
        let attempt = "reading the hypervisor's inventory";
        self.look(async { self.hypervisor.vms().await.map_err(|error| error.context(attempt)) }).await
    }

    /// A VM as it is now. Ends early if the command is asked to end.
    pub(super) async fn current(&self, vm: &Vm) -> Result<Vm, StepError> {
        let attempt = format!("looking at {vm} again");
        self.look(async { self.hypervisor.vm(&vm.reference).await.map_err(|error| error.context(attempt)) }).await
    }

    /// Notes for the VM that a step stops, powers on or takes a disk from, as it is just now.
    pub(super) async fn touched(&self, plan: &Plan, journal: &Journal<'_>, step: Step) -> Result<Touched, StepError> {
        let which = Which::of(step.action);
        let index = step.node.filter(|_| step.detaches() || which.is_some());
        let Some(index) = index else { return Ok(Touched::default()) };
        let node = &plan.nodes[index];
        let vms = Vms::of(node, self.vms().await?, journal.progress().noted(index));
        if let Some(which) = which {
            // The step itself reports what blocks it.
            let vm = vms.ok().and_then(|vms| if which == Which::Old { vms.old } else { vms.new });
            let file = vm.and_then(|vm| Some(DiskRef { uuid: vm.uuid(), path: vm.settings? }));
            let Some(file) = file else { return Ok(Touched::default()) };
            let datastore = self.look(self.hypervisor.disk_datastore(&file)).await?;
            return Ok(Touched { disk: None, datastore, settings: Some(file.path) });
        }
        let vms = vms?.without_strays()?;
        let vm = if step.action == Action::Detach { vms.old } else { vms.new };
        let Some(disk) = vm.as_ref().and_then(|vm| vm.disk(node.disk.uuid)).map(|disk| disk.reference.clone()) else {
            return Ok(Touched::default());
        };
        let datastore = self.look(self.hypervisor.disk_datastore(&disk)).await?;
        Ok(Touched { disk: Some(disk), datastore, settings: None })
    }

    /// The place of a node's disk that no VM holds: its datastore may have another name since it was taken from one.
    async fn present(&self, journal: &Journal<'_>, node: usize) -> Result<DiskRef, StepError> {
        let noted = place(journal, node);
        match datastore_of(journal.entries(), node) {
            Some(datastore) => self.look(self.hypervisor.present_place(&noted, datastore)).await,
            None => Ok(noted),
        }
    }

    /// The outcome of a step of a node that an operator has replaced because it was lost. The node is healthy in a VM
    /// of the deployment that the plan does not know. VMs that the plan knows are touched only to remove them. `None`
    /// for every other node.
    async fn replacement(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        vms: &Vms,
        step: Step,
        progress: &Progress,
    ) -> Result<Option<StepOutcome>, StepError> {
        let known = step.node.is_some_and(|index| progress.is_replaced(index));
        // A node counts as lost if its old VM is gone, or should run and does not.
        let begins = matches!(step.action, Action::CloneVm | Action::Prepare | Action::ShutDown);
        let is_lost = vms.old.as_ref().is_none_or(|old| begins && old.power != PowerState::On);
        let removes = matches!(step.action, Action::DestroyNew | Action::DestroyOld);
        if !known && (!is_lost || removes) {
            return Ok(None);
        }
        // The remaining work needs the new VM only.
        let needs_new = vms.new.is_some()
            && matches!(step.action, Action::Copy | Action::Attach | Action::PowerOn | Action::Gate | Action::Commit);
        let facts = match self.nodes.facts(node.address).await {
            Ok(facts) => facts,
            Err(_) if !known && (vms.old.is_some() || needs_new) => return Ok(None),
            Err(error) if known => return Err(error.context(format!("asking {}", node.name)).into()),
            Err(error) => {
                let words = format!("does not answer from another VM of this deployment: {error:#}");
                return Err(self.lost(plan, node, progress, &words).await);
            }
        };
        let holder = vms.others.iter().find(|vm| vm.is_named(facts.holder));
        let image = &plan.target.image;
        // In a rollback it may run any image: there is nothing to go back to.
        let right = progress.direction == Direction::Back || facts.image.build == image.build;
        match holder {
            Some(holder) if facts.ready && facts.healthy.is_some() && right && facts.node == node.name => {
                let runs = facts.image.build();
                let note = match step.action {
                    Action::DestroyNew => self.destroy_new(node, vms).await?,
                    Action::DestroyOld => self.destroy_old(plan, node, vms).await?,
                    Action::Commit => self.commit(node).await?,
                    _ => format!("{} was replaced: {holder} runs {runs}; nothing is to be done", node.name),
                };
                Ok(Some(StepOutcome { replaced: true, ..StepOutcome::note(note) }))
            }
            None if step.action == Action::Commit || (needs_new && !known) => Ok(None),
            _ if known => {
                let words = format!("{} was replaced and does not run well now", node.name);
                Err(StepError::pause(NODE_NOT_READY, words))
            }
            _ if vms.old.is_some() => Ok(None),
            _ => {
                let words = format!("is not healthy on {image} in another VM of this deployment");
                Err(self.lost(plan, node, progress, &words).await)
            }
        }
    }

    /// The error for a node whose old VM is not shown and was not replaced.
    async fn lost(&self, plan: &Plan, node: &PlannedNode, progress: &Progress, how: &str) -> StepError {
        match self.old_is_not_moved(plan, node).await {
            Ok(()) => gone(plan, node, progress, how),
            Err(trouble) => trouble,
        }
    }
}

/// The error for a node whose old VM is gone and was not replaced. All at once, others that are off do not stay so for
/// that.
fn gone(plan: &Plan, node: &PlannedNode, progress: &Progress, how: &str) -> StepError {
    let words = format!("the {} is gone, and {} {how}", old_of(node), node.name);
    let is_any_away = progress.direction == Direction::Back || progress.is_any_away(plan);
    if progress.is_at_once(plan) && is_any_away {
        return StepError::pause(reason::VM_GONE, words);
    }
    StepError::blocked(reason::VM_GONE, words)
}

/// A step that no plan has in this place.
fn misplaced(action: Action) -> StepError {
    StepError::refused(reason::PLAN, format!("{action:?} has no place here"))
}

/// Notes for the VM that a step works on, before it does.
#[derive(Default)]
pub(super) struct Touched {
    /// The disk that is taken away from it.
    pub(super) disk: Option<DiskRef>,
    /// The datastore of that, or of its settings.
    pub(super) datastore: Option<String>,
    /// The file that its settings are in.
    pub(super) settings: Option<String>,
}

pub(super) struct StepOutcome {
    pub(super) note: String,
    pub(super) vm: Option<Uuid>,
    pub(super) replaced: bool,
    /// The copies of the node's data disk that it made, or could not remove.
    pub(super) copies: Vec<KeptCopy>,
}

impl StepOutcome {
    fn note(note: String) -> Self {
        Self { note: clean(&note), vm: None, replaced: false, copies: Vec::new() }
    }
}

pub(super) struct Vms {
    /// The one that it runs in before.
    pub(super) old: Option<Vm>,
    /// The one that was made for its swap, or what an interrupted run left of it.
    pub(super) new: Option<Vm>,
    /// All others that carry its name in their stamp, but for the strays.
    pub(super) others: Vec<Vm>,
    /// Those that carry the stamp of its swap, and were not noted to be made for it.
    pub(super) strays: Vec<Vm>,
    node: String,
    missing: String,
}

impl Vms {
    /// Finds them by stamp and BIOS UUID. `noted` is that of the VM that its clone step has made, or is to make. No other
    /// one is taken for it, whatever stamp it carries.
    ///
    /// # Errors
    /// When two could be the old one, or the new one. One of them is a copy, made with its stamp, and which one is
    /// unknown.
    pub(super) fn of(node: &PlannedNode, vms: Vec<Vm>, noted: Option<Uuid>) -> Result<Self, StepError> {
        let is_its = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
        let (swap, rest): (Vec<Vm>, Vec<Vm>) = vms.into_iter().filter(is_its).partition(|vm| vm.is_of_swap(node.swap));
        let (new, strays): (Vec<Vm>, Vec<Vm>) = swap.into_iter().partition(|vm| Some(vm.uuid()) == noted);
        let (old, others): (Vec<Vm>, Vec<Vm>) = rest.into_iter().partition(|vm| vm.uuid() == node.old);
        for several in [&old, &new] {
            if let [one, other, ..] = several.as_slice() {
                let words = format!("{one} and {other} carry the same identity: one is a copy of the other; remove it");
                return Err(StepError::blocked(reason::VM_COPIED, words));
            }
        }
        Ok(Self {
            old: old.into_iter().next(),
            new: new.into_iter().next(),
            others,
            strays,
            node: node.name.clone(),
            missing: format!("the VM {} that was made for {} is gone", node.new_name, node.name),
        })
    }

    /// The same, if there are no strays. No stamp tells what those are. Each is a copy, an incomplete VM of an earlier
    /// version, or a VM whose stamp another user has written. They are never touched.
    ///
    /// # Errors
    /// They are named: an operator decides what becomes of them.
    pub(super) fn without_strays(self) -> Result<Self, StepError> {
        let Some(stray) = self.strays.first() else { return Ok(self) };
        let words = format!(
            "{stray}, which is {}, carries the stamp of this swap of {}, and no record shows that it was created: it stays. Remove \
             it if it is a copy, or was left half made; else take its stamp away",
            stray.power, self.node
        );
        Err(StepError::blocked(reason::VM_LEFT, words))
    }

    fn old_vm(&self) -> Result<&Vm, StepError> {
        self.old.as_ref().ok_or_else(|| StepError::blocked(reason::VM_GONE, "the old VM is gone"))
    }

    fn new_vm(&self) -> Result<&Vm, StepError> {
        self.new.as_ref().ok_or_else(|| StepError::refused(reason::VM_GONE, &self.missing))
    }
}

/// Where a node's disk was when it was last taken from a VM, or else when the plan was made.
pub(super) fn place(journal: &Journal<'_>, node: usize) -> DiskRef {
    disk_of(journal.entries(), node).unwrap_or(&journal.plan().nodes[node].disk).clone()
}
