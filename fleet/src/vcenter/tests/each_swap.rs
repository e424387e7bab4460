//! Images that are swapped with faults: at each call of each command with one node, at each entry of the journal with
//! three. After the fault the operator continues or rolls back: the swap ends in one of the allowed states.

use super::cut::{CUTS, Cut, CutStore};
use super::points::{Call, Told, block_on, drawn, each};
use super::upgrade::Cluster;
use crate::upgrade::{Outcome, Request, RunOutcome};

/// The command with the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
    Commit,
}

const WAYS: [Way; 3] = [Way::Forward, Way::Back, Way::Commit];

/// Calls that change something during a swap, and calls for lease and journal.
const CHANGES: [&str; 9] = [
    "CloneVM_Task",
    "CopyVirtualDisk_Task",
    "Datastore",
    "DeleteVirtualDisk_Task",
    "Destroy_Task",
    "MarkAsTemplate",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
    "ShutdownGuest",
];

impl Way {
    /// The command. `None` for the one that begins the upgrade.
    fn verb(self) -> Option<Request> {
        match self {
            Self::Forward => None,
            Self::Back => Some(Request::Rollback),
            Self::Commit => Some(Request::Commit),
        }
    }

    /// The operator's possible next commands: continue, and roll back if that is possible.
    fn then(self) -> [Request; 2] {
        match self {
            Self::Forward | Self::Back => [Request::Resume, Request::Rollback],
            Self::Commit => [Request::Resume, Request::Commit],
        }
    }

    /// Brings a new cluster to the beginning of this way.
    async fn begin(self, cluster: &Cluster) {
        if self != Self::Forward {
            assert_eq!(insist(cluster, Request::Resume).await, Some(Outcome::Upgraded));
        }
    }

    /// The allowed outcomes after the operator's command. `None`: no upgrade had begun that could be rolled back.
    fn ends(self, then: Request) -> &'static [Option<Outcome>] {
        match (self, then) {
            (Self::Forward, Request::Rollback) => &[Some(Outcome::RolledBack), None],
            (Self::Forward, _) => &[Some(Outcome::Upgraded)],
            (Self::Back, Request::Rollback) => &[Some(Outcome::RolledBack)],
            // If the first entry was not written, the state is the former one.
            (Self::Back, _) => &[Some(Outcome::RolledBack), Some(Outcome::Upgraded)],
            (Self::Commit, Request::Commit) => &[Some(Outcome::Committed)],
            (Self::Commit, _) => &[Some(Outcome::Committed), Some(Outcome::Upgraded)],
        }
    }

    /// The outcome without a fault.
    fn arrives(self) -> Outcome {
        match self {
            Self::Forward => Outcome::Upgraded,
            Self::Back => Outcome::RolledBack,
            Self::Commit => Outcome::Committed,
        }
    }

    /// Continues, and panics unless the state is as expected.
    async fn end(self, cluster: &Cluster, then: Request) {
        let outcome = insist(cluster, then).await;
        assert!(self.ends(then).contains(&outcome), "{outcome:?}");
        is_as_after(cluster, outcome).await;
    }
}

/// Panics unless the state is that after an upgrade with this outcome. `None` means that no upgrade had begun.
async fn is_as_after(cluster: &Cluster, outcome: Option<Outcome>) {
    match outcome {
        Some(Outcome::Upgraded) => cluster.runs(true, 2).await,
        Some(Outcome::Committed) => {
            cluster.runs(true, 1).await;
            assert_eq!(cluster.disk_copies(), Vec::<String>::new());
        }
        _ => cluster.runs(false, 1).await,
    }
}

/// Repeats a command after the fault until it ends.
async fn insist(cluster: &Cluster, verb: Request) -> Option<Outcome> {
    let mut said = Vec::new();
    while said.len() < 4 {
        let given = match cluster.give(Some(verb)).await {
            Err(error) if error.to_string().contains("there is no upgrade") => match verb {
                Request::Resume => cluster.give(None).await,
                _ => return None,
            },
            given => given,
        };
        match given {
            Ok(RunOutcome::Ended(outcome)) => return Some(outcome),
            given => said.push(format!("{given:?}")),
        }
    }
    panic!("{said:#?}");
}

/// All ways with each next command, combined with the items of `of`.
fn crossed<P: Clone>(of: impl Fn(Way) -> Vec<P>) -> Vec<(Way, P, Request)> {
    let of_way = |way: Way| {
        let points = of(way);
        points.into_iter().flat_map(move |point| way.then().map(|then| (way, point.clone(), then)))
    };
    WAYS.into_iter().flat_map(of_way).collect()
}

#[test]
fn fault_at_any_call_leaves_no_partial_swap() {
    let counts = WAYS.map(|way| {
        block_on(async {
            let cluster = Cluster::of(1).await.copying();
            way.begin(&cluster).await;
            cluster.bed.count_anew().await;
            let ended = matches!(cluster.give(way.verb()).await, Ok(RunOutcome::Ended(_)));
            // A machine that is too busy to answer in time makes a few more calls.
            assert!(ended || insist(&cluster, way.then()[0]).await.is_some());
            cluster.bed.counts().await
        })
    });
    for method in CHANGES {
        assert!(counts.iter().any(|counts| counts.contains_key(method)), "{method} is not called: {counts:?}");
    }
    let of_way = |way: Way| Call::all(&counts[way as usize], &CHANGES).into_iter().map(move |call| (way, call));
    let tried = drawn("calls of a swap of one node", WAYS.into_iter().flat_map(of_way).collect());
    each("calls of a swap of one node", &tried, async |queue| {
        let mut cluster = Cluster::of(1).await.copying();
        while let Some(point @ (way, call)) = queue.next() {
            let mut met = false;
            for then in way.then() {
                let _told = Told::of((point, then));
                cluster.reset(1).await;
                way.begin(&cluster).await;
                call.spoil(&cluster.bed).await;
                let given = cluster.give(way.verb()).await;
                met |= cluster.bed.has_spoilt().await;
                cluster.bed.spoil_nothing().await;
                if call.is_any() && matches!(given, Ok(RunOutcome::Ended(outcome)) if outcome == way.arrives()) {
                    is_as_after(&cluster, Some(way.arrives())).await;
                    break;
                }
                way.end(&cluster, then).await;
            }
            queue.count(met);
        }
    });
}

#[test]
fn cut_at_any_entry_leaves_no_partial_swap() {
    let entries = WAYS.map(|way| {
        block_on(async {
            let cluster = Cluster::of(3).await;
            way.begin(&cluster).await;
            let store = CutStore::at(&cluster.store, None);
            let ended = matches!(cluster.give_on(way.verb(), &store).await, Ok(RunOutcome::Ended(_)));
            assert!(ended || insist(&cluster, way.then()[0]).await.is_some());
            store.entries()
        })
    });
    assert!(entries.iter().sum::<usize>() > 60, "{entries:?}");
    let all = crossed(|way| {
        let at = |entry| CUTS.map(|cut| (entry, cut));
        (1..=entries[way as usize]).flat_map(at).collect::<Vec<(usize, Cut)>>()
    });
    let tried = drawn("entries of the journal of a swap of three nodes", all);
    each("entries of the journal of a swap of three nodes", &tried, async |queue| {
        let mut cluster = Cluster::of(3).await;
        while let Some(point @ (way, at, then)) = queue.next() {
            let _told = Told::of(point);
            cluster.reset(3).await;
            way.begin(&cluster).await;
            let store = CutStore::at(&cluster.store, Some(*at));
            let given = store.given(cluster.give_on(way.verb(), &store)).await;
            let met = store.entries() >= at.0;
            queue.count(met);
            assert_eq!(given.is_none(), met && matches!(at.1, Cut::Before | Cut::Half | Cut::After), "{given:?}");
            way.end(&cluster, *then).await;
        }
    });
}
