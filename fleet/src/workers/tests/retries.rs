//! Failed joins: when another worker is created in place of one, when that stops, and what continues.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, node_on, pool, template, vm};
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};
use crate::workers::pool::retry_seconds;
use crate::workers::{Action, Inventory, Next, Pool, State, WorkerRecord, next, reason};

/// The moment at which all workers have entered their states, in seconds of Unix time.
pub(super) const BEGUN: u64 = 10_000;

/// A pool that retries joins, its workers, and their VMs and nodes at one moment.
pub(super) struct Workers {
    pub(super) pool: Pool,
    pub(super) machines: Vec<WorkerRecord>,
    pub(super) seen: Inventory,
}

impl Workers {
    pub(super) fn new(count: usize, states: &[State]) -> Self {
        let mut pool = Pool { failed_joins: Some(1), ..pool(count) };
        let mut seen = Inventory { now: BEGUN, ..Inventory::default() };
        let mut machines = Vec::new();
        for (number, state) in (1..).zip(states) {
            pool.last_index = number;
            let id = Uuid::from_u128(number.into());
            let made = WorkerRecord::new(&pool, id, None, BEGUN);
            let machine = WorkerRecord { state: *state, bios_uuid: Some(id), expires: u64::MAX, ..made };
            seen.vms.push(Vm { power: PowerState::On, ..vm(&machine.name, id, Some(machine.stamp(DEPLOYMENT))) });
            if *state == State::Running {
                seen.nodes.push(node_on(&machine.name, &format!("vsphere://{id}")));
            }
            machines.push(machine);
        }
        Self { pool, machines, seen }
    }

    pub(super) fn next(&self) -> Next {
        next(&self.pool, &self.machines, &self.seen)
    }

    /// The workers that are to leave, each with the code of its reason.
    pub(super) fn leave(&self) -> Vec<(String, String)> {
        let leaves = |action| match action {
            Action::Leave(name, why) => Some((name, why.code)),
            _ => None,
        };
        self.next().actions.into_iter().filter_map(leaves).collect()
    }

    /// How many workers are to be created.
    fn adds(&self) -> usize {
        self.next().actions.iter().filter(|action| matches!(action, Action::Add { .. })).count()
    }
}

pub(super) fn leaving(name: &str, code: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), code.to_owned())]
}

const MEMBER: State = State::Running;

/// Finding 13 of controller.md.
#[test]
fn failed_join_is_retried_after_a_growing_pause() {
    for (failed, minutes) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (6, 15), (u32::MAX, 15)] {
        assert_eq!(retry_seconds(failed), minutes * 60, "{failed}");
    }
    let mut workers = Workers::new(3, &[MEMBER, MEMBER, State::Failed]);
    for (failed, pause) in [(1, 60), (2, 120)] {
        workers.pool.failed_joins = Some(failed);
        workers.seen.now = BEGUN + pause - 1;
        let next = workers.next();
        assert_eq!((next.actions.len(), next.stopped.len()), (0, 0), "{next:?}");
        let [wait] = next.waits.as_slice() else { panic!("{next:?}") };
        let minute = 46 + pause / 60;
        let words = format!("another worker is created in its place at 1970-01-01T02:{minute}:40Z: it did not join");
        assert!(wait.reason.words == words && !wait.lasting, "{wait}");
        workers.seen.now = BEGUN + pause;
        assert_eq!(workers.leave(), leaving("t-w3", reason::GIVEN_UP));
    }
}

/// Finding 13 of controller.md.
#[test]
fn retries_stop_at_a_tenth_of_the_pool() {
    for (count, failed, is_stopped) in [(3, 2, false), (3, 3, true), (30, 3, true), (40, 3, false), (40, 4, true)] {
        let mut states = vec![MEMBER; count - 1];
        states.push(State::Failed);
        let mut workers = Workers::new(count, &states);
        workers.pool.failed_joins = Some(failed);
        workers.seen.now = BEGUN + 900;
        let (name, next) = (format!("t-w{count}"), workers.next());
        if is_stopped {
            let [pool, worker] = next.stopped.as_slice() else { panic!("{next:?}") };
            let words = format!("{failed} joins in a row have failed. From {failed} on (10 % of {count} workers");
            assert!(pool.worker.is_none() && pool.reason.words.starts_with(&words), "{pool}");
            assert_eq!((worker.worker.as_ref(), next.actions.len()), (Some(&name), 0));
        } else {
            assert_eq!((workers.leave(), next.stopped), (leaving(&name, reason::GIVEN_UP), Vec::new()));
        }
    }
}

/// Finding 13 of controller.md.
#[test]
fn failed_worker_delays_no_other_one() {
    let mut workers = Workers::new(4, &[MEMBER, MEMBER, State::Failed]);
    for failed in [1, 3] {
        workers.pool.failed_joins = Some(failed);
        assert_eq!(workers.adds(), 1, "{failed}");
    }
    // Outdated workers are replaced until the retries stop.
    workers.pool.count = 3;
    workers.machines[0].template = template("former");
    for (failed, adds) in [(1, 1), (3, 0)] {
        workers.pool.failed_joins = Some(failed);
        assert_eq!((workers.adds(), workers.leave()), (adds, Vec::new()), "{failed}");
    }
}

#[test]
fn surplus_failed_worker_leaves() {
    let workers = Workers::new(2, &[MEMBER, MEMBER, State::Failed]);
    assert_eq!(workers.leave(), leaving("t-w3", reason::SURPLUS));
}

/// Another client may have its name. The operator has to look, and the other workers continue.
#[test]
fn impersonated_worker_is_not_retried() {
    let mut workers = Workers::new(4, &[MEMBER, MEMBER, State::Failed]);
    workers.seen.now = BEGUN + 900;
    for code in [reason::NAME_IN_USE, reason::UNPROVED] {
        workers.machines[2].reason = Some(Reason::new(code, "another client has joined"));
        let next = workers.next();
        let [stopped] = next.stopped.as_slice() else { panic!("{next:?}") };
        assert_eq!((stopped.worker.as_deref(), workers.adds(), workers.leave()), (Some("t-w3"), 1, Vec::new()));
    }
}

/// The commands of labs retry nothing: their operator does.
#[test]
fn without_retries_a_failed_join_stops_the_pool() {
    let mut workers = Workers::new(4, &[MEMBER, MEMBER, State::Failed]);
    (workers.pool.failed_joins, workers.seen.now) = (None, BEGUN + 900);
    assert_eq!((workers.adds(), workers.leave(), workers.next().stopped.len()), (0, Vec::new(), 1));
}
