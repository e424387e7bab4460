//! Each call of a command with each fault. An error has its effect at once, late or never. A command is killed before, after or
//! during the call, or its lease is taken over. The next command completes everything, and a removal leaves nothing. Forbidden
//! calls panic in the fakes.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::fake::{DESTROY, DESTROY_ALL, Does, Fault, Given, World, wanted};
use crate::control_plane::{Goal, Lifecycle, RunOutcome};

/// The command in which the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    One,
    Three,
    Destroy,
    DestroyAll,
}

impl Way {
    async fn world(self) -> World {
        match self {
            Self::One | Self::Three => World::new(),
            Self::Destroy => World::with(3).await,
            Self::DestroyAll => {
                let world = World::with(3).await;
                world.lock().removes_used = true;
                world
            }
        }
    }

    fn nodes(self) -> u8 {
        if self == Self::One { 1 } else { 3 }
    }

    async fn give(self, world: &World) -> Given {
        match self {
            Self::One | Self::Three => world.give_over(Goal::Deploy(&wanted(self.nodes()))).await,
            Self::Destroy => world.give_over(DESTROY).await,
            Self::DestroyAll => world.give_over(DESTROY_ALL).await,
        }
    }
}

/// Nothing of the cluster is left except used disks, and other VMs are unchanged.
async fn is_gone(world: &World, told: &str) {
    let status = world.status().await.expect(told);
    assert!(status.done && status.lifecycle == Lifecycle::Deleted, "{told}: {status:?}");
    assert_eq!(world.own(), [""; 0], "{told}: VMs are left");
    let (left, free): (BTreeSet<Uuid>, _) = (status.left.iter().map(|disk| disk.uuid).collect(), world.free_disks());
    assert!(left.is_superset(&free), "{told}: a disk is left that nobody names");
    // If a command was killed, or lost the response, the result of its last removal request is unknown.
    let gone: Vec<Uuid> = left.difference(&free).copied().collect();
    assert!(gone.len() <= 1 && gone.iter().all(|disk| status.doubtful.contains(disk)), "{told}: {status:?}");
    let state = world.lock();
    // It is unknown whether a node was powered on that was about to be.
    let blank = state.disks.values().filter(|used| !**used).count();
    assert!(blank <= 1, "{told}: blank disks are left");
    assert!(!state.removes_used || state.disks.is_empty(), "{told}: a disk is left");
    assert_eq!(state.machines.len(), 2, "{told}: a VM of others is gone");
}

async fn point(way: Way, call: usize, does: (&str, Does), fault: Fault, then_destroy: bool) {
    let told = format!("{way:?}, call {call} {does:?}: {fault:?}, destroyed {then_destroy}");
    let world = way.world().await;
    world.set_fault(Some((call, fault)));
    let given = way.give(&world).await;
    if fault.kills() {
        assert!(matches!(given, Given::Killed), "{told}: {given:?}");
    }
    if fault == Fault::Overtaken {
        // A command whose cluster is already gone has nothing to do.
        assert!(matches!(&given, Given::Failed(_) | Given::Arrived(RunOutcome::Gone, _)), "{told}: {given:?}");
        let state = world.lock();
        assert_eq!(state.emptied, 0, "{told}: the place is another one's");
        let changed = state.calls.iter().skip(call).find(|(_, does)| *does == Does::ChangesVm);
        assert_eq!(changed, None, "{told}: it goes on");
    }
    world.set_fault(None);
    if then_destroy {
        // Without a record nothing exists, and the error says so.
        match world.give_over(DESTROY).await {
            Given::Arrived(RunOutcome::Gone, _) => is_gone(&world, &told).await,
            Given::Failed(error) => {
                assert!(error.to_string().contains("there is nothing of the cluster"), "{told}: {error:#}");
                assert_eq!(world.own(), [""; 0], "{told}");
            }
            other => panic!("{told}: {other:?}"),
        }
        return;
    }
    let given = way.give(&world).await;
    match (way, given) {
        (Way::One | Way::Three, Given::Arrived(RunOutcome::Up(kubeconfig), status)) => {
            assert!(kubeconfig.starts_with("from 10.0.0.1") && status.done && status.formed, "{told}: {status:?}");
            let names: Vec<String> = (1..=way.nodes()).map(|number| format!("cp{number}")).collect();
            assert_eq!(world.own(), names, "{told}");
            assert_eq!(world.free_disks().len(), 0, "{told}: a disk is left over");
            assert_eq!(world.lock().machines.len(), names.len() + 2, "{told}: a VM of others is gone");
        }
        (Way::Destroy | Way::DestroyAll, Given::Arrived(RunOutcome::Gone, _)) => is_gone(&world, &told).await,
        (_, given) => panic!("{told}: {given:?}"),
    }
}

async fn everywhere(way: Way) {
    let world = way.world().await;
    world.set_fault(None);
    way.give(&world).await.arrived();
    let calls = world.lock().calls.clone();
    assert!(calls.len() > 20, "{calls:?}");
    let begins = calls.iter().position(|(name, _)| *name == "store.write").unwrap_or_default() + 4;
    let mut points = 0;
    for (number, (name, does)) in (1..).zip(calls) {
        let overtaken: &[Fault] = if name == "store.exists" && number > begins { &[Fault::Overtaken] } else { &[] };
        for fault in does.faults().iter().chain(overtaken) {
            let ends = if way == Way::One || way == Way::Three { vec![false, true] } else { vec![false] };
            for then_destroy in ends {
                point(way, number, (name, does), *fault, then_destroy).await;
                points += 1;
            }
        }
    }
    println!("{way:?}: {points} points");
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_creation_of_one_node() {
    everywhere(Way::One).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_creation_of_three_nodes() {
    everywhere(Way::Three).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_removal() {
    everywhere(Way::Destroy).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_removal_with_disks() {
    everywhere(Way::DestroyAll).await;
}
