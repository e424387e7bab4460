//! Workers that are named to leave first.

use super::fake::template;
use super::retries::{Workers, leaving};
use crate::workers::{State, reason};

const MEMBER: State = State::Running;

fn naming(count: usize, states: &[State], names: &[&str]) -> Workers {
    let mut workers = Workers::new(count, states);
    workers.pool.remove_first = names.iter().map(|name| (*name).to_owned()).collect();
    workers
}

#[test]
fn named_worker_leaves_before_the_newest_one() {
    let three = [MEMBER; 3];
    assert_eq!(naming(2, &three, &["t-w1", "t-w9"]).leave(), leaving("t-w1", reason::ASKED));
    assert_eq!(naming(2, &three, &["t-w1", "t-w2"]).leave(), leaving("t-w1", reason::ASKED), "two are wanted");
    assert_eq!(naming(2, &three, &["t-w9"]).leave(), leaving("t-w3", reason::SURPLUS));
    assert!(naming(3, &three, &["t-w1"]).next().is_done(), "there are not too many");
}

#[test]
fn named_worker_leaves_though_others_are_not_ready() {
    let mut workers = naming(2, &[MEMBER; 3], &["t-w1"]);
    workers.seen.nodes[1].ready = false;
    assert_eq!(workers.leave(), leaving("t-w1", reason::ASKED));
    let workers = naming(3, &[MEMBER, MEMBER, MEMBER, State::Failed], &["t-w1"]);
    assert_eq!(workers.leave(), leaving("t-w1", reason::ASKED), "the failed one is created again");
    let workers = naming(3, &[MEMBER, MEMBER, MEMBER, State::Failed], &["t-w4"]);
    assert_eq!(workers.leave(), leaving("t-w4", reason::ASKED));
}

#[test]
fn named_worker_awaits_one_that_joins() {
    let workers = naming(3, &[MEMBER, MEMBER, MEMBER, State::Joining], &["t-w1"]);
    let next = workers.next();
    let is_its = |wait: &&crate::workers::Wait| wait.worker.as_deref() == Some("t-w1");
    let wait = next.waits.iter().find(is_its).expect("a wait");
    assert_eq!((wait.reason.code.as_str(), next.actions.len()), (reason::ASKED, 0));
    let workers = naming(3, &[MEMBER; 4], &["t-w1"]);
    assert_eq!(workers.leave(), leaving("t-w1", reason::ASKED));
}

/// Otherwise the rollout would make room by outdated workers alone.
#[test]
fn named_worker_leaves_during_a_rollout() {
    let mut workers = naming(2, &[MEMBER; 3], &["t-w1"]);
    for machine in &mut workers.machines[1..] {
        machine.template = template("former");
    }
    assert_eq!(workers.leave(), leaving("t-w1", reason::ASKED));
}
