//! Decides what comes next for a pool: one pure function.

use std::collections::BTreeSet;

use super::action::Action;
use super::inventory::{Inventory, Observed};
use super::pool::Pool;
use super::reason;
use super::wait::Wait;
use super::worker_record::{State, WorkerRecord};
use super::worker_step::{Step, step};
use crate::engine::Reason;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The actions that are possible now, at most one for each worker.
    pub actions: Vec<Action>,
    pub waits: Vec<Wait>,
    /// Workers that did not join: no further one is created like them until the operator continues.
    pub stopped: Vec<Wait>,
}

impl Next {
    /// Whether nothing is left to do or to wait for.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.waits.is_empty() && self.stopped.is_empty()
    }
}

/// The next actions and waits, from the pool, the records and the inventory. Called again after each action.
pub fn next(pool: &Pool, machines: &[WorkerRecord], seen: &Inventory) -> Next {
    let mut next = Next::default();
    let view = View { pool, machines, seen };
    for machine in machines {
        match step(pool, machine, seen, &|| view.misses(machine)) {
            Step::Idle => {}
            Step::Run(action) => next.actions.push(action),
            Step::RunThenWait(action, wait) => {
                next.actions.push(action);
                next.waits.push(wait);
            }
            Step::Wait(wait) => next.waits.push(wait),
        }
    }
    view.count(&mut next);
    next
}

/// The pool as a whole.
struct View<'a> {
    pool: &'a Pool,
    machines: &'a [WorkerRecord],
    seen: &'a Inventory,
}

impl View<'_> {
    /// Adds and removes workers.
    fn count(&self, next: &mut Next) {
        let Self { pool, machines, .. } = self;
        let staying: Vec<&WorkerRecord> = machines.iter().filter(|machine| machine.stays()).collect();
        let outdated = staying.iter().filter(|machine| self.seen.is_outdated(pool, machine)).count();
        self.judge_failed(next);
        let stopped = !next.stopped.is_empty();
        let replaces = outdated > 0 && !pool.rollout.paused && !stopped;
        if outdated > 0 && pool.rollout.paused {
            let words = format!("{outdated} outdated workers are not replaced: that is paused");
            next.waits.push(Wait::of_pool(reason::PAUSED, true, words));
        }
        let before = next.actions.len();
        self.let_go(&staying, outdated, replaces, next);
        if !stopped {
            self.add(&staying, outdated, next);
        }
        let moves = machines.iter().any(|machine| machine.state.moves());
        if replaces && !moves && next.actions.len() == before {
            let (available, count) = (self.available(&staying).len(), pool.count);
            let words = format!("{available} of {count} workers are Ready, and {} must stay", pool.floor());
            next.waits.push(Wait::of_pool(reason::TOO_FEW, false, words));
        }
    }

    /// How many workers there may be, of which some are outdated. During a pause, replacements that have begun are finished, and
    /// no further one begins.
    fn allowed(&self, staying: &[&WorkerRecord], outdated: usize) -> usize {
        let coming = staying.iter().filter(|machine| machine.state != State::Running).count();
        let surge = if self.pool.rollout.paused { coming } else { usize::MAX };
        self.pool.count + if outdated > 0 { surge.min(self.pool.rollout.max_surge) } else { 0 }
    }

    /// How many are to be created, if nothing has stopped that. An outdated one counts only while none is replaced.
    fn missing(&self, staying: usize, outdated: usize) -> usize {
        let counting = if self.pool.rollout.paused { staying } else { staying - outdated };
        self.pool.count.saturating_sub(counting)
    }

    /// Whether another one is created for this one once its VM is gone, and no replacement exists yet.
    fn misses(&self, machine: &WorkerRecord) -> bool {
        let others = self.machines.iter().filter(|other| other.stays() && other.name != machine.name);
        let (mut staying, mut outdated) = (0, 0);
        for other in others {
            staying += 1;
            outdated += usize::from(self.seen.is_outdated(self.pool, other));
        }
        !self.machines.iter().any(|other| self.stops(other)) && self.missing(staying, outdated) > 0
    }

    /// Whether one has failed, and stays for the operator to inspect, because it is not outdated. A worker that had joined once
    /// is replaced only without a pause.
    fn stops(&self, machine: &WorkerRecord) -> bool {
        let stays = machine.has_joined() && self.pool.rollout.paused;
        machine.state == State::Failed && (stays || !self.seen.is_outdated(self.pool, machine))
    }

    /// Reports those that have failed and stay, and removes the others.
    fn judge_failed(&self, next: &mut Next) {
        for machine in self.machines.iter().filter(|machine| machine.state == State::Failed) {
            let why = machine.reason.clone().unwrap_or_else(|| Reason::new(reason::NOT_JOINED, "it did not join"));
            if self.stops(machine) {
                // It stays, whatever happens to its VM.
                let is_unseen = |wait: &Wait| wait.reason.code == reason::VM_UNSEEN;
                next.waits.retain(|wait| wait.worker.as_ref() != Some(&machine.name) || !is_unseen(wait));
                next.stopped.push(Wait::lasting(machine, &why.code, &why.words));
            } else if machine.token.is_none() && !self.seen.is_hidden(machine) {
                next.actions.retain(|action| action.machine() != Some(&machine.name));
                next.actions.push(Action::Leave(machine.name.clone(), why));
            }
        }
    }

    /// The workers that are Ready and take pods.
    fn available<'m>(&self, staying: &[&'m WorkerRecord]) -> BTreeSet<&'m str> {
        let available = staying.iter().filter(|machine| self.seen.is_available(machine));
        available.map(|machine| machine.name.as_str()).collect()
    }

    /// Chooses workers to remove: outdated ones, then surplus ones. An available worker is removed only if enough others are
    /// available. No worker that has joined is removed if too few are available.
    fn let_go(&self, staying: &[&WorkerRecord], outdated: usize, replaces: bool, next: &mut Next) {
        let available = self.available(staying);
        let mut left = available.len();
        let mut surplus = staying.len().saturating_sub(self.allowed(staying, outdated));
        let is_outdated = |machine: &WorkerRecord| self.seen.is_outdated(self.pool, machine);
        let mut order: Vec<&WorkerRecord> = staying.to_vec();
        // The oldest outdated one, the newest surplus one. Workers that serve nothing come first.
        order.sort_by_key(|machine| {
            let number = i128::from(machine.number());
            let serves = available.contains(machine.name.as_str());
            (
                !is_outdated(machine),
                serves,
                machine.state == State::Running,
                if is_outdated(machine) { number } else { -number },
            )
        });
        for machine in order.into_iter().filter(|machine| !self.seen.is_hidden(machine)) {
            let why = if replaces && is_outdated(machine) {
                Reason::new(reason::OUTDATED, "it is replaced by one that is made as the pool wants it now")
            } else if surplus > 0 {
                Reason::new(reason::SURPLUS, "there are more workers than are wanted")
            } else {
                continue;
            };
            // It leaves in the next round, which follows at once. The present observation is recorded first, and no other one
            // leaves in its place.
            let is_it = |action: &Action| matches!(action, Action::Suspect(name, _) if *name == machine.name);
            if next.actions.iter().any(is_it) {
                surplus = surplus.saturating_sub(1);
                continue;
            }
            let serves = usize::from(available.contains(machine.name.as_str()));
            if machine.state == State::Running && left < self.pool.floor() + serves {
                continue;
            }
            // Its next action also comes next while it leaves.
            next.actions.retain(|action| action.machine() != Some(&machine.name));
            next.waits.retain(|wait| wait.worker.as_ref() != Some(&machine.name));
            next.actions.push(Action::Leave(machine.name.clone(), why));
            left -= serves;
            surplus = surplus.saturating_sub(1);
        }
    }

    /// Adds missing workers, and replacements.
    fn add(&self, staying: &[&WorkerRecord], outdated: usize, next: &mut Next) {
        let pool = self.pool;
        let needed = self.missing(staying.len(), outdated);
        let has_vm = |machine: &WorkerRecord| {
            !matches!(self.seen.vm(machine), Observed::Nothing) || self.seen.is_hidden(machine)
        };
        let there = |machine: &&WorkerRecord| machine.stays() || has_vm(machine);
        let there = self.machines.iter().filter(there).count();
        let room = (pool.count + pool.rollout.max_surge).saturating_sub(there);
        let used: BTreeSet<_> = self.machines.iter().filter_map(|machine| machine.address).collect();
        let mut free = pool.addresses.iter().flat_map(|addresses| addresses.iter()).filter(|one| !used.contains(one));
        for _ in 0..needed.min(room) {
            let address = free.next();
            if pool.addresses.is_some() && address.is_none() {
                let words = format!("a further worker of the pool {} has no address", pool.name);
                next.waits.push(Wait::of_pool(reason::NO_ADDRESS, true, words));
                break;
            }
            next.actions.push(Action::Add { address });
        }
    }
}
