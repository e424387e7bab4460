//! The pool under one lease, reconciled again and again: by a command until it is done, by a controller forever.

use std::sync::Mutex;
use std::time::Duration;

use super::act::{ActionContext, ActionOutcome};
use super::action::Action;
use super::decide::{Next, next};
use super::goal::Goal;
use super::guarded_cluster::GuardedCluster;
use super::inventory::{Inventory, Observed};
use super::look::look_or_end;
use super::missing::Missing;
use super::newer::Newer;
use super::reason;
use super::records::{PoolRecord, Records};
use super::wait::Wait;
use super::worker_pool::{Notice, Workers};
use super::worker_record::{State, WorkerRecord};
use crate::engine::{ActionError, GuardedHypervisor, Reason};
use crate::hypervisor::DiskRef;
use crate::lease::Lease;

/// How long a round may create VMs, in seconds, before those are powered on. At least one is created.
const MAKING: u64 = 60;

pub struct ReconcileLoop<'a> {
    acting: ActionContext<'a>,
    records: Records<'a>,
    /// Whether requests of a former command have to be awaited.
    in_doubt: bool,
    missing: Missing,
}

impl<'a> ReconcileLoop<'a> {
    /// For a pool, from its record.
    pub fn new(workers: &'a Workers<'a>, hold: &'a Lease<'a>, records: Records<'a>) -> Self {
        let acting = ActionContext {
            workers,
            hypervisor: GuardedHypervisor::new(workers.hypervisor, hold, Some(&workers.cancelled)),
            cluster: GuardedCluster { cluster: workers.cluster, hold },
            turns: Mutex::default(),
        };
        Self { acting, records, in_doubt: true, missing: Missing::default() }
    }

    pub fn kept(&self) -> &PoolRecord {
        self.records.kept()
    }

    /// How long the store is left alone after a failure ([`Lease::rest`]).
    pub(super) fn rest(&self) -> Duration {
        self.acting.cluster.hold.rest()
    }

    /// Records a further goal, all of it at once. A goal that is already reached, such as the same number of workers, writes
    /// nothing.
    ///
    /// # Errors
    /// If the goal is not possible now, or it is not certain that it was recorded: then the same goal may be given again.
    pub async fn wish(&mut self, wish: &Goal) -> anyhow::Result<()> {
        let before = self.kept();
        let wanted = wish.applied(Some(before.clone()), (self.acting.workers.clock)())?;
        let is_changed = |machine: &WorkerRecord| {
            let Some(was) = before.machine(&machine.name) else { return true };
            // Each command watches joined workers from its own start. That changes nothing of them.
            let same = WorkerRecord { since: machine.since, ..was.clone() };
            if machine.state == State::Running { *machine != same } else { machine != was }
        };
        let is_other_pool = wanted.pool != before.pool;
        let machines: Vec<WorkerRecord> = wanted.machines.into_iter().filter(is_changed).collect();
        if !is_other_pool && machines.is_empty() {
            return Ok(());
        }
        self.records.save_all(wanted.pool, machines).await
    }

    /// Reads once, and does all that is possible then. An interrupted or killed command continues with the next call.
    ///
    /// # Errors
    /// If this command must stop because another one has taken over. Other errors are in the result.
    pub async fn step(&mut self) -> anyhow::Result<Round> {
        let Self { acting, records, in_doubt, missing } = self;
        let workers = acting.workers;
        acting.cluster.hold.renew().await?;
        let mut round = Round::default();
        let seen = match looked(acting, records.kept(), in_doubt).await {
            Ok(mut seen) => {
                missing.note(&records.kept().machines, &mut seen);
                seen
            }
            Err(trouble) => {
                missing.blind();
                round.blind = true;
                round.meets(None, trouble, in_doubt)?;
                round.needs_a_person = round.waits.iter().all(|wait| wait.lasting);
                return Ok(round);
            }
        };
        if let Err(trouble) = note_settings(&acting.hypervisor, records, &seen).await {
            round.meets(None, trouble, in_doubt)?;
            return Ok(round);
        }
        if workers.restorable {
            let newer = seen.newer(&records.kept().machines);
            round.waits.extend(newer.into_iter().map(|vm| Wait::of_pool(reason::VM_NEWER, true, Newer(vm))));
            if !round.waits.is_empty() {
                round.needs_a_person = true;
                return Ok(round);
            }
        }
        let next = next(&records.kept().pool, &records.kept().machines, &seen);
        round.done = next.is_done();
        let Next { actions, waits, stopped } = next;
        (round.waits, round.stopped) = (waits, stopped);
        // A blocked drain continues only once the operator has acted, and so does a refused action.
        let (mut cloned, mut may_go_on) = (false, false);
        for action in actions {
            if *workers.cancelled.borrow() {
                break;
            }
            // The token of a created VM should not expire while all others are created.
            let makes = matches!(action, Action::CloneVm(_));
            if makes && cloned && (workers.clock)().saturating_sub(seen.now) >= MAKING {
                continue;
            }
            cloned |= makes;
            if !matches!(action, Action::Drain(_)) {
                (workers.watch)(&Notice::Begun(&action));
            }
            let drains = matches!(action, Action::Drain(_));
            let leads_on = leads_on(&action, action.machine().and_then(|name| records.kept().machine(name)));
            match acting.act(records, &seen, &action).await {
                Ok(ActionOutcome::Changed) => {
                    if let Action::Destroy(name) = &action {
                        missing.destroyed(name);
                    }
                    round.released |= matches!(action, Action::Release(..));
                    // A late drain may never end: a pod that tolerates the cordon comes back each time.
                    let comes_back = drains
                        && round.waits.iter().any(|wait| wait.lasting && wait.worker.as_ref() == action.machine());
                    round.changed |= !comes_back;
                    round.progressed |= leads_on && !comes_back;
                }
                Ok(ActionOutcome::Blocked(why)) => round.blocked(&action, why),
                Err(trouble) => {
                    may_go_on |= !matches!(trouble, ActionError::Refused(_));
                    round.meets(action.machine(), trouble, in_doubt)?;
                    continue;
                }
            }
            may_go_on |= !drains;
        }
        round.needs_a_person = !round.done && !may_go_on && round.waits.iter().all(|wait| wait.lasting);
        Ok(round)
    }
}

/// Records where the settings of VMs are, before anything is done with them.
async fn note_settings(
    hypervisor: &GuardedHypervisor<'_>,
    records: &mut Records<'_>,
    seen: &Inventory,
) -> Result<(), ActionError> {
    let mut moved = Vec::new();
    for machine in &records.kept().machines {
        let Observed::Vm(vm) = seen.vm(machine) else { continue };
        let Some(path) = vm.settings.clone() else { continue };
        if machine.settings.as_ref() == Some(&path) && machine.datastore.is_some() {
            continue;
        }
        let file = DiskRef { uuid: vm.uuid(), path };
        let datastore = hypervisor.disk_datastore(&file).await?;
        let now = WorkerRecord { settings: Some(file.path), datastore, ..machine.clone() };
        moved.extend((now != *machine).then_some(now));
    }
    if moved.is_empty() {
        return Ok(());
    }
    records.save_all(records.kept().pool.clone(), moved).await.map_err(ActionError::store)
}

async fn looked(acting: &ActionContext<'_>, kept: &PoolRecord, in_doubt: &mut bool) -> Result<Inventory, ActionError> {
    if *in_doubt {
        acting.hypervisor.settled().await??;
        *in_doubt = false;
    }
    look_or_end(acting.workers, kept).await
}

/// Whether an action is progress. Recording or removing a worker, a VM or a token is not, if it is created again and again.
fn leads_on(action: &Action, machine: Option<&WorkerRecord>) -> bool {
    let is = |state| machine.is_some_and(|machine| machine.state == state);
    let is_given_up = |machine: &WorkerRecord| machine.reason.as_ref().is_some_and(|why| why.code == reason::GIVEN_UP);
    match action {
        Action::Add { .. } | Action::Hear(..) | Action::Suspect(..) => false,
        Action::RemoveToken(_) if is(State::Rejoining) => false,
        Action::Leave(..)
        | Action::RemoveToken(_)
        | Action::PowerOff(_)
        | Action::Detach(..)
        | Action::Destroy(_)
        | Action::Disconnect(..)
        | Action::Release(..) => !is(State::Provisioning) && !machine.is_some_and(is_given_up),
        Action::Forget(..) => !machine.is_some_and(is_given_up),
        _ => true,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Something was done.
    pub changed: bool,
    /// Something was done that is progress.
    pub progressed: bool,
    /// A VM was disowned: it is kept, and its worker's record still exists.
    pub released: bool,
    /// Something could not be done.
    pub failed: bool,
    /// Nothing could be read.
    pub blind: bool,
    /// Nothing is left to do or to wait for.
    pub done: bool,
    /// Only the operator can help.
    pub needs_a_person: bool,
    /// The conditions before the run continues.
    pub waits: Vec<Wait>,
    pub stopped: Vec<Wait>,
}

impl Round {
    /// A blocked drain reports the cause, and lasts as the drain does.
    fn blocked(&mut self, action: &Action, reason: Reason) {
        for wait in self.waits.iter_mut().filter(|wait| wait.worker.as_ref() == action.machine()) {
            wait.reason = reason.clone();
        }
    }

    /// A failed action is run later, or never by this command.
    fn meets(&mut self, machine: Option<&String>, trouble: ActionError, in_doubt: &mut bool) -> anyhow::Result<()> {
        let (reason, lasting) = trouble.reason(in_doubt)?;
        self.failed = true;
        // It does not pass, whatever else the worker waited for.
        self.waits.retain(|wait| !lasting || machine.is_none() || wait.worker.as_ref() != machine);
        self.waits.push(Wait { worker: machine.cloned(), reason, lasting, token: false });
        Ok(())
    }
}
