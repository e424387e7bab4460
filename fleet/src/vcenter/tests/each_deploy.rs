//! Clusters that are deployed and destroyed with faults: at each call with one node, at each entry of the journal with
//! three. After the fault the operator repeats the command, or has the rest of the cluster removed.

use super::cluster::{REMOVE, World};
use super::cut::{CUTS, Cut, CutStore};
use super::points::{Call, Told, block_on, drawn, each};
use crate::control_plane::{Goal, RunOutcome};

/// The command with the fault, and the operator's command afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Made,
    MadeThenRemoved,
    Removed,
}

const WAYS: [Way; 3] = [Way::Made, Way::MadeThenRemoved, Way::Removed];

/// Calls that change something, and calls for lease and journal.
const CHANGES: [&str; 13] = [
    "CloneVM_Task",
    "CreateSnapshot_Task",
    "Datastore",
    "DeleteVirtualDisk_Task",
    "Destroy_Task",
    "HttpNfcLeaseComplete",
    "ImportVApp",
    "MarkAsTemplate",
    "MoveDatastoreFile_Task",
    "NFC",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
    "ShutdownGuest",
];

impl Way {
    fn wish(self, world: &World) -> Goal<'_> {
        if self == Self::Removed { REMOVE } else { Goal::Deploy(&world.wanted) }
    }

    /// Brings an empty vCenter to the beginning of this way.
    async fn begin(self, world: &World) {
        if self == Self::Removed {
            insist(world, Goal::Deploy(&world.wanted)).await;
        }
    }

    /// Continues, and panics unless the cluster is complete or gone, as expected.
    async fn end(self, world: &World) {
        if self == Self::Made {
            insist(world, Goal::Deploy(&world.wanted)).await;
            world.is_up().await;
        }
        insist(world, REMOVE).await;
        world.is_gone().await;
    }
}

/// Repeats a command after the fault until it ends.
async fn insist(world: &World, wish: Goal<'_>) {
    let (mut said, removes) = (Vec::new(), matches!(wish, Goal::Destroy { .. }));
    while said.len() < 4 {
        match world.give(wish).await {
            Ok(RunOutcome::Up(_)) if !removes => return,
            Ok(RunOutcome::Gone) if removes => return,
            // Without a note nothing is removed. The caller checks that nothing exists.
            Err(error) if removes && error.to_string().contains("there is nothing of the cluster") => return,
            given => said.push(format!("{given:?}")),
        }
    }
    panic!("{said:#?}");
}

#[test]
fn fault_at_any_call_leaves_no_partial_cluster() {
    let counts = WAYS.map(|way| {
        block_on(async {
            let world = World::of(1).await;
            way.begin(&world).await;
            world.bed.count_anew().await;
            insist(&world, way.wish(&world)).await;
            world.bed.counts().await
        })
    });
    for method in CHANGES {
        assert!(counts.iter().any(|counts| counts.contains_key(method)), "{method} is not called: {counts:?}");
    }
    let of_way = |way: Way| Call::all(&counts[way as usize], &CHANGES).into_iter().map(move |call| (way, call));
    let tried = drawn("calls of a cluster of one node", WAYS.into_iter().flat_map(of_way).collect());
    each("calls of a cluster of one node", &tried, async |queue| {
        let mut world = World::of(1).await;
        while let Some(point @ (way, call)) = queue.next() {
            let _told = Told::of(point);
            world.reset().await;
            way.begin(&world).await;
            call.spoil(&world.bed).await;
            let given = world.give(way.wish(&world)).await;
            queue.count(world.bed.has_spoilt().await);
            world.bed.spoil_nothing().await;
            // Removal is also covered by the other way.
            if call.is_any() && *way == Way::MadeThenRemoved && matches!(given, Ok(RunOutcome::Up(_))) {
                world.is_up().await;
                continue;
            }
            way.end(&world).await;
        }
    });
}

#[test]
fn cut_at_any_entry_leaves_no_partial_cluster() {
    let entries = WAYS.map(|way| {
        block_on(async {
            let world = World::of(3).await;
            way.begin(&world).await;
            let store = CutStore::at(&world.store, None);
            // A machine that is too busy to answer in time writes fewer entries.
            let _ = world.give_on(way.wish(&world), &store).await;
            insist(&world, way.wish(&world)).await;
            store.entries()
        })
    });
    assert!(entries.iter().sum::<usize>() > 20, "{entries:?}");
    let of_way = |way: Way| {
        let at = move |entry| CUTS.map(|cut| (way, (entry, cut)));
        (1..=entries[way as usize]).flat_map(at)
    };
    let what = "entries of the journal of a cluster of three nodes";
    let tried: Vec<(Way, (usize, Cut))> = drawn(what, WAYS.into_iter().flat_map(of_way).collect());
    each(what, &tried, async |queue| {
        let mut world = World::of(3).await;
        while let Some(point @ (way, at)) = queue.next() {
            let _told = Told::of(point);
            world.reset().await;
            way.begin(&world).await;
            let store = CutStore::at(&world.store, Some(*at));
            let given = store.given(world.give_on(way.wish(&world), &store)).await;
            let met = store.entries() >= at.0;
            queue.count(met);
            assert_eq!(given.is_none(), met && matches!(at.1, Cut::Before | Cut::Half | Cut::After), "{given:?}");
            way.end(&world).await;
        }
    });
}
