//! Which workers of a NodePool are replaced: workers that have joined and were unhealthy for a while. If too many are unhealthy,
//! the cause is elsewhere, and none is replaced. An unknown state does not count as unhealthy. If a cluster or a Provider does
//! not answer for a while, the time starts again afterwards.

use fleet::upgrade::Reason as Why;
use fleet::workers::{PoolRecord, State, UNHEALTHY, WorkerStatus, WorkersStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::text::{self, listed};
use crate::objects::{Machine, MachineStatus, NodePoolReason, Repair};

/// How many unhealthy workers a message names.
const NAMED: usize = 5;
/// Seconds until the next look at a pool, and the shortest time of failed looks that starts the unhealthy time again. A new leader
/// looks within that.
const LOOKS: i64 = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repairs {
    /// Reason of the pool's condition `Repairable`.
    pub reason: NodePoolReason,
    pub words: String,
    pub now: Vec<String>,
}

impl Repairs {
    /// Replaces no worker if there is no room for a successor. `lacks` says why there is no room.
    pub fn with_room(self, lacks: Option<&str>) -> Self {
        match lacks {
            Some(words) if !self.now.is_empty() => {
                Self { reason: NodePoolReason::NoRoom, words: words.to_owned(), now: Vec::new() }
            }
            _ => self,
        }
    }
}

/// Removes the unhealthy time of a worker if looks failed for a third of `afterSeconds`. The worker may have been healthy in
/// between. A restored database has old times too.
pub fn forget_old_illness(status: &mut MachineStatus, policy: &Repair, now: &Time) {
    let gap = LOOKS + LOOKS.max(i64::from(policy.after_seconds) / 3);
    let is_recent = |seen: &Time| now.0.as_second().saturating_sub(seen.0.as_second()) <= gap;
    if !status.last_unhealthy.as_ref().is_some_and(is_recent) {
        (status.unhealthy_since, status.last_unhealthy) = (None, None);
    }
}

/// Decides the repairs. The Machines have the time since when each worker is unhealthy.
pub fn repairs(policy: &Repair, machines: &[Machine], seen: &WorkersStatus, now: &Time) -> Repairs {
    use NodePoolReason::{FewUnhealthy, RepairNotKnown, RepairOff, TooManyUnhealthy};
    let none = |reason, words: String| Repairs { reason, words, now: Vec::new() };
    if policy.after_seconds == 0 {
        return none(RepairOff, String::new());
    }
    if !seen.looked {
        return none(RepairNotKnown, text::joined(&seen.waits));
    }
    // A worker that is being replaced counts as unhealthy until it is deleted.
    let is_repaired = |worker: &WorkerStatus| {
        worker.state == State::Deleting && worker.reason.as_ref().is_some_and(|why| why.code == UNHEALTHY)
    };
    let has_joined =
        |worker: &&WorkerStatus| matches!(worker.state, State::Running | State::Rejoining) || is_repaired(worker);
    let joined = seen.workers.iter().filter(has_joined).count();
    let ill: Vec<&str> = seen.workers.iter().filter(|it| it.unhealthy || is_repaired(it)).map(|it| &*it.name).collect();
    let allowed = allowed(policy.max_unhealthy_percent, joined);
    if ill.len() > allowed {
        let named = listed(&ill, NAMED);
        let words = format!("{} of {joined} workers are unhealthy, and {allowed} may be: {named}", ill.len());
        return none(TooManyUnhealthy, words);
    }
    let since = |name: &str| {
        let machine = machines.iter().find(|machine| machine.name_any() == name)?;
        machine.status.as_ref()?.unhealthy_since.clone()
    };
    let is_due = |name: &&str| {
        since(name).is_some_and(|since| {
            now.0.as_second().saturating_sub(since.0.as_second()) >= i64::from(policy.after_seconds)
        })
    };
    let is_ill = seen.workers.iter().filter(|worker| worker.unhealthy).map(|worker| &*worker.name);
    let due = is_ill.filter(is_due).map(str::to_owned).collect();
    Repairs { reason: FewUnhealthy, words: String::new(), now: due }
}

/// How many of the joined workers may be unhealthy for a repair: at least one, unless the share is 0.
fn allowed(percent: u8, joined: usize) -> usize {
    if percent == 0 { 0 } else { (joined * usize::from(percent) / 100).max(1) }
}

/// Marks the workers to replace as leaving. `now` is in seconds of Unix time.
pub fn repaired(kept: &mut PoolRecord, repairs: &Repairs, policy: &Repair, now: u64) {
    for worker in kept.machines.iter_mut().filter(|worker| repairs.now.contains(&worker.name)) {
        let words = format!("it was not Ready, or its VM did not run, for {} s or longer", policy.after_seconds);
        worker.leave(now, Why::new(UNHEALTHY, words));
    }
}

#[cfg(test)]
mod tests {
    use fleet::upgrade::Reason;
    use fleet::workers::{Discards, Wait};
    use k8s_openapi::jiff::Timestamp;

    use super::super::fixture::now;
    use super::*;
    use crate::objects::{MachineStatus, fixture};

    fn worker(number: usize, unhealthy: bool) -> WorkerStatus {
        WorkerStatus {
            name: format!("shop-general-w{number}"),
            address: None,
            state: State::Running,
            image: String::new(),
            kubelet: None,
            up_to_date: true,
            available: !unhealthy,
            ready: !unhealthy,
            unhealthy,
            vm: None,
            power: None,
            joined_seconds: Some(9),
            reason: None,
            says: None,
            drain: Discards::default(),
            kept: None,
            left: Vec::new(),
        }
    }

    /// A pool with these unhealthy workers, each since so many seconds.
    fn pool(count: usize, ill: &[(usize, i64)]) -> (Vec<Machine>, WorkersStatus) {
        let workers: Vec<_> =
            (1..=count).map(|number| worker(number, ill.iter().any(|(at, _)| *at == number))).collect();
        let machine = |(number, seconds): &(usize, i64)| {
            let mut machine = Machine::new(&format!("shop-general-w{number}"), fixture::worker());
            let since = Timestamp::from_second(now().0.as_second() - seconds).unwrap();
            machine.status = Some(MachineStatus { unhealthy_since: Some(Time(since)), ..MachineStatus::default() });
            machine
        };
        let seen = WorkersStatus {
            pool: "general".to_owned(),
            wanted: count,
            looked: true,
            available: count - ill.len(),
            image: String::new(),
            kubernetes: "1.36".to_owned(),
            paused: false,
            workers,
            waits: Vec::new(),
            stopped: Vec::new(),
            done: ill.is_empty(),
            held_by: None,
            newer: Vec::new(),
        };
        (ill.iter().map(machine).collect(), seen)
    }

    fn decided(policy: &Repair, (machines, seen): &(Vec<Machine>, WorkersStatus)) -> (NodePoolReason, Vec<String>) {
        let Repairs { reason, now, .. } = repairs(policy, machines, seen, &now());
        (reason, now)
    }

    fn names(numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(|number| format!("shop-general-w{number}")).collect()
    }

    #[test]
    fn long_unhealthy_worker_is_replaced_unless_too_many() {
        use NodePoolReason::{FewUnhealthy, TooManyUnhealthy};
        let policy = Repair { after_seconds: 300, max_unhealthy_percent: 40 };
        type Case = (usize, &'static [(usize, i64)], NodePoolReason, &'static [usize]);
        let cases: [Case; 10] = [
            (3, &[], FewUnhealthy, &[]),
            (3, &[(2, 299)], FewUnhealthy, &[]),
            (3, &[(2, 300)], FewUnhealthy, &[2]),
            // After a clock was set back, the duration is unknown.
            (3, &[(2, -9)], FewUnhealthy, &[]),
            (5, &[(2, 300), (4, 9), (5, 9)], TooManyUnhealthy, &[]),
            (5, &[(2, 300), (4, 400)], FewUnhealthy, &[2, 4]),
            (5, &[(2, 300), (4, 10)], FewUnhealthy, &[2]),
            // One may always be unhealthy.
            (1, &[(1, 300)], FewUnhealthy, &[1]),
            (2, &[(1, 300)], FewUnhealthy, &[1]),
            (2, &[(1, 300), (2, 300)], TooManyUnhealthy, &[]),
        ];
        for (count, ill, reason, repaired) in cases {
            let decided = decided(&policy, &pool(count, ill));
            assert_eq!(decided, (reason, names(repaired)), "{ill:?} of {count}");
        }
        let all = pool(7, &[1, 2, 3, 4, 5, 6, 7].map(|at| (at, 900)));
        let said = repairs(&policy, &all.0, &all.1, &now()).words;
        let named = "7 of 7 workers are unhealthy, and 2 may be: shop-general-w1, shop-general-w2, shop-general-w3, shop-general-w4, \
                     shop-general-w5 and 2 more";
        assert_eq!(said, named);
        let strict = Repair { max_unhealthy_percent: 0, ..policy };
        assert_eq!(decided(&strict, &pool(5, &[(2, 900)])), (TooManyUnhealthy, Vec::new()));
        let off = Repair { after_seconds: 0, ..policy };
        assert_eq!(decided(&off, &pool(5, &[(2, 900)])), (NodePoolReason::RepairOff, Vec::new()));
    }

    #[test]
    fn worker_of_unknown_health_is_not_replaced() {
        let policy = Repair::default();
        let (machines, seen) = pool(3, &[(2, 900)]);
        assert_eq!(decided(&policy, &(Vec::new(), seen.clone())), (NodePoolReason::FewUnhealthy, Vec::new()));
        let unseen = WorkersStatus { looked: false, ..seen.clone() };
        assert_eq!(decided(&policy, &(machines.clone(), unseen)), (NodePoolReason::RepairNotKnown, Vec::new()));
        let well = pool(3, &[]).1;
        assert_eq!(decided(&policy, &(machines.clone(), well)), (NodePoolReason::FewUnhealthy, Vec::new()));
        let reason = Reason::new("workers.not-joined", "it did not join");
        let failed = Wait { worker: Some("shop-general-w9".to_owned()), reason, lasting: true, token: false };
        // Finding 13 of controller.md: a worker that did not join does not stop the repair of others.
        let stopped = WorkersStatus { stopped: vec![failed], ..seen };
        assert_eq!(decided(&policy, &(machines, stopped)), (NodePoolReason::FewUnhealthy, names(&[2])));
    }

    #[test]
    fn no_worker_is_replaced_without_room() {
        let policy = Repair { after_seconds: 300, max_unhealthy_percent: 40 };
        let decided = |seconds| {
            let (machines, seen) = pool(3, &[(2, seconds)]);
            repairs(&policy, &machines, &seen, &now())
        };
        let stopped = decided(300).with_room(Some("there is no room"));
        let said = (stopped.reason, stopped.words.as_str(), stopped.now.len());
        assert_eq!(said, (NodePoolReason::NoRoom, "there is no room", 0));
        assert_eq!(decided(299).with_room(Some("there is no room")), decided(299), "nobody is to be repaired");
        assert_eq!(decided(300).with_room(None), decided(300));
    }

    /// Finding 22 of controller.md. A restored database has old times.
    #[test]
    fn illness_is_forgotten_after_failed_looks() {
        let policy = |after_seconds| Repair { after_seconds, max_unhealthy_percent: 40 };
        for (after, seen, is_kept) in
            [(300, 60, true), (300, 160, true), (300, 161, false), (900, 360, true), (30, 120, true), (30, 121, false)]
        {
            let at = |ago: i64| Time(Timestamp::from_second(now().0.as_second() - ago).unwrap());
            let (unhealthy_since, last_unhealthy) = (Some(at(seen + 10)), Some(at(seen)));
            let mut status = MachineStatus { unhealthy_since, last_unhealthy, ..MachineStatus::default() };
            forget_old_illness(&mut status, &policy(after), &now());
            assert_eq!(status.unhealthy_since.is_some(), is_kept, "{after} {seen}");
        }
        let mut old = MachineStatus { unhealthy_since: Some(now()), ..MachineStatus::default() };
        forget_old_illness(&mut old, &policy(300), &now());
        assert_eq!(old.unhealthy_since, None, "a former version noted it");
    }

    /// Otherwise all workers would be replaced, a few at a time.
    #[test]
    fn replaced_worker_counts_as_unhealthy_until_deleted() {
        let policy = Repair { after_seconds: 300, max_unhealthy_percent: 40 };
        let (machines, mut seen) = pool(5, &[(1, 900), (2, 900), (3, 900)]);
        let going = WorkerStatus { state: State::Deleting, unhealthy: false, ..worker(1, true) };
        seen.workers[0] = WorkerStatus { reason: Some(Reason::new(UNHEALTHY, "it goes")), ..going.clone() };
        assert_eq!(decided(&policy, &(machines.clone(), seen.clone())).0, NodePoolReason::TooManyUnhealthy);
        seen.workers[0] = WorkerStatus { reason: Some(Reason::new("workers.surplus", "it goes")), ..going };
        let (reason, _) = decided(&policy, &(machines, seen));
        assert_eq!(reason, NodePoolReason::TooManyUnhealthy, "of four that have joined one may be");
    }
}
