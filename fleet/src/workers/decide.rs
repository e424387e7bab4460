//! Decides what comes next for a pool: one pure function.

use std::collections::BTreeSet;

use super::action::Action;
use super::inventory::{Inventory, Observed};
use super::pool::{LEAST_FAILED_JOINS, Pool, retry_seconds};
use super::reason;
use super::wait::Wait;
use super::worker_record::{State, WorkerRecord};
use super::worker_step::{Step, step};
use crate::engine::Reason;
use crate::timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The actions that are possible now, at most one for each worker.
    pub actions: Vec<Action>,
    pub waits: Vec<Wait>,
    /// Workers that did not join, and wait for the operator. If failed joins are retried, the first entry says why that has ended.
    /// Otherwise no further worker is created until the operator continues.
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
        let asked = self.asked();
        let remains = |machine: &&WorkerRecord| machine.stays() && !asked.contains(machine.name.as_str());
        let staying: Vec<&WorkerRecord> = machines.iter().filter(remains).collect();
        let outdated = staying.iter().filter(|machine| self.seen.is_outdated(pool, machine)).count();
        let stopped = self.is_stopped();
        self.judge_failed(&asked, &staying, outdated, next);
        self.remove_asked(&asked, next);
        let replaces = outdated > 0 && !pool.rollout.paused && !stopped;
        if outdated > 0 && pool.rollout.paused {
            let words = format!("{outdated} outdated workers are not replaced: that is paused");
            next.waits.push(Wait::of_pool(reason::PAUSED, true, words));
        }
        let before = next.actions.len();
        self.let_go(&staying, outdated, replaces, next);
        if self.adds() {
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

    /// How many are to be created, if nothing has stopped that. An outdated one counts only while none is replaced. A failed one
    /// keeps its place until it is created again.
    fn missing(&self, staying: usize, outdated: usize) -> usize {
        let counting = if self.pool.rollout.paused || self.is_stopped() { staying } else { staying - outdated };
        let failed = self.pool.failed_joins.map_or(0, |_| self.machines.iter().filter(|one| self.stops(one)).count());
        self.pool.count.saturating_sub(counting + failed)
    }

    /// Whether failed workers are not created again, and outdated ones are not replaced.
    fn is_stopped(&self) -> bool {
        let mut failed = self.machines.iter().filter(|machine| self.stops(machine));
        match self.pool.failed_joins {
            None => failed.next().is_some(),
            Some(joins) => joins as usize >= self.pool.most_failed_joins() && failed.any(is_retried),
        }
    }

    /// Whether missing workers are created.
    fn adds(&self) -> bool {
        self.pool.failed_joins.is_some() || !self.is_stopped()
    }

    /// The workers that `remove_first` names, at most as many as there are too many.
    fn asked(&self) -> BTreeSet<&str> {
        let counts = |machine: &&WorkerRecord| machine.stays() || self.stops(machine);
        let surplus = self.machines.iter().filter(counts).count().saturating_sub(self.pool.count);
        let is_named = |machine: &&WorkerRecord| self.pool.remove_first.contains(&machine.name);
        let named = self.machines.iter().filter(counts).filter(is_named).take(surplus);
        named.map(|machine| machine.name.as_str()).collect()
    }

    /// Removes the workers that were asked for, except failed ones. `maxUnavailable` does not delay them. A member waits for
    /// workers that still join, if the others are too few.
    fn remove_asked(&self, asked: &BTreeSet<&str>, next: &mut Next) {
        let is_asked = |machine: &&WorkerRecord| asked.contains(machine.name.as_str());
        let has_come =
            |machine: &&WorkerRecord| machine.state == State::Running || (self.stops(machine) && !is_asked(machine));
        let mut spare = self.machines.iter().filter(has_come).count().saturating_sub(self.pool.count);
        for machine in self.machines.iter().filter(is_asked).filter(|machine| machine.stays()) {
            if self.seen.is_hidden(machine) || is_suspected(machine, next) {
                continue;
            }
            if machine.state == State::Running {
                if spare == 0 {
                    let words = "it leaves once another worker has joined";
                    next.waits.push(Wait::passing(machine, reason::ASKED, words));
                    continue;
                }
                spare -= 1;
            }
            leave(machine, asked_for(), next);
        }
    }

    /// Whether another one is created for this one once its VM is gone, and no replacement exists yet.
    fn misses(&self, machine: &WorkerRecord) -> bool {
        let others = self.machines.iter().filter(|other| other.stays() && other.name != machine.name);
        let (mut staying, mut outdated) = (0, 0);
        for other in others {
            staying += 1;
            outdated += usize::from(self.seen.is_outdated(self.pool, other));
        }
        self.adds() && self.missing(staying, outdated) > 0
    }

    /// Whether one has failed, and stays for the operator to inspect, because it is not outdated. A worker that had joined once
    /// is replaced only without a pause.
    fn stops(&self, machine: &WorkerRecord) -> bool {
        let stays = machine.has_joined() && self.pool.rollout.paused;
        machine.state == State::Failed && (stays || !self.seen.is_outdated(self.pool, machine))
    }

    /// Reports those that have failed and stay, and removes the others. A removed one that is missing is created again.
    fn judge_failed(&self, asked: &BTreeSet<&str>, staying: &[&WorkerRecord], outdated: usize, next: &mut Next) {
        let (allowed, stopped) = (self.allowed(staying, outdated), self.is_stopped());
        let mut places = staying.len();
        for machine in self.machines.iter().filter(|machine| machine.state == State::Failed) {
            let why = machine.reason.clone().unwrap_or_else(|| Reason::new(reason::NOT_JOINED, "it did not join"));
            let (is_retried, due) = match self.pool.failed_joins {
                Some(joins) => (is_retried(machine), machine.since.saturating_add(retry_seconds(joins))),
                None => (false, 0),
            };
            let leaves = if !self.stops(machine) {
                Some(why.clone())
            } else if asked.contains(machine.name.as_str()) {
                Some(asked_for())
            } else if self.pool.failed_joins.is_some() && places >= allowed {
                Some(too_many())
            } else {
                places += 1;
                let words = || format!("another worker is created in its place: {}", why.words);
                (is_retried && !stopped && self.seen.now >= due).then(|| Reason::new(reason::GIVEN_UP, words()))
            };
            if let Some(why) = leaves {
                if machine.token.is_none() && !self.seen.is_hidden(machine) {
                    next.actions.retain(|action| action.machine() != Some(&machine.name));
                    next.actions.push(Action::Leave(machine.name.clone(), why));
                }
                continue;
            }
            // It stays, whatever happens to its VM.
            let is_unseen = |wait: &Wait| wait.reason.code == reason::VM_UNSEEN;
            next.waits.retain(|wait| wait.worker.as_ref() != Some(&machine.name) || !is_unseen(wait));
            if is_retried && !stopped {
                let due = timestamp::shown(due);
                let words = format!("another worker is created in its place at {due}: {}", why.words);
                next.waits.push(Wait::passing(machine, &why.code, words));
            } else {
                next.stopped.push(Wait::lasting(machine, &why.code, &why.words));
            }
        }
        if let Some(joins) = self.pool.failed_joins.filter(|_| stopped && !next.stopped.is_empty()) {
            let Pool { count, .. } = self.pool;
            let words = format!(
                "{joins} joins in a row have failed. From {} on (10 % of {count} workers, at least {LEAST_FAILED_JOINS}) no failed \
                 worker is created again, and no outdated one is replaced",
                self.pool.most_failed_joins()
            );
            next.stopped.insert(0, Wait::of_pool(reason::NOT_JOINED, true, words));
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
                too_many()
            } else {
                continue;
            };
            // It leaves in the next round, which follows at once. The present observation is recorded first, and no other one
            // leaves in its place.
            if is_suspected(machine, next) {
                surplus = surplus.saturating_sub(1);
                continue;
            }
            let serves = usize::from(available.contains(machine.name.as_str()));
            if machine.state == State::Running && left < self.pool.floor() + serves {
                continue;
            }
            leave(machine, why, next);
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

/// Whether another worker is created in place of a failed one without the operator. Not if the operator has to look for another
/// client, or the worker was a member, or its record is lost.
fn is_retried(machine: &WorkerRecord) -> bool {
    let is_excepted = |why: &Reason| [reason::UNPROVED, reason::JOURNAL].contains(&why.code.as_str());
    !machine.has_joined() && !machine.is_anothers() && !machine.reason.as_ref().is_some_and(is_excepted)
}

fn asked_for() -> Reason {
    Reason::new(reason::ASKED, "removeFirst names it, and there are more workers than are wanted")
}

fn too_many() -> Reason {
    Reason::new(reason::SURPLUS, "there are more workers than are wanted")
}

/// Whether this round records that another client has joined in place of the worker.
fn is_suspected(machine: &WorkerRecord, next: &Next) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Suspect(name, _) if *name == machine.name);
    next.actions.iter().any(is_it)
}

/// Lets a worker go. Its next action also comes next while it leaves.
fn leave(machine: &WorkerRecord, why: Reason, next: &mut Next) {
    next.actions.retain(|action| action.machine() != Some(&machine.name));
    next.waits.retain(|wait| wait.worker.as_ref() != Some(&machine.name));
    next.actions.push(Action::Leave(machine.name.clone(), why));
}
