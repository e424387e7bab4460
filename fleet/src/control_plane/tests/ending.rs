//! The end of a command that has reached its goal: a later failure does not change the outcome.

use tokio::sync::watch;

use super::fake::{DESTROY_ALL, Fault, World, wanted};
use crate::control_plane::{Action, Goal, Notice, RunOutcome};
use crate::lease::TakeOver;

#[tokio::test(start_paused = true)]
async fn a_failed_last_read_keeps_the_kubeconfig() {
    let wanted = wanted(1);
    for (wish, emptied) in [(Goal::Deploy(&wanted), 0), (DESTROY_ALL, 1)] {
        let twin = World::removing(1).await;
        twin.set_fault(None);
        twin.give(wish).await.arrived();
        let last = 1 + twin.lock().calls.iter().rposition(|call| call.0 == "vms").unwrap();
        // The VMs cannot be listed, or the last upgrade cannot be read.
        for number in [last, last - 1] {
            let world = World::removing(1).await;
            world.set_fault(Some((number, Fault::Fails)));
            let (arrived, status) = world.give(wish).await.arrived();
            assert!(matches!(arrived, RunOutcome::Up(_) | RunOutcome::Gone), "{arrived:?}");
            assert_eq!((status.looked, world.lock().emptied), (false, emptied), "{status:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unremovable_place_keeps_no_cluster() {
    let twin = World::removing(1).await;
    twin.set_fault(None);
    twin.give(DESTROY_ALL).await.arrived();
    let last = 1 + twin.lock().calls.iter().rposition(|call| call.0 == "store.exists").unwrap();
    for fault in [Fault::Fails, Fault::Overtaken] {
        let world = World::removing(1).await;
        world.set_fault(Some((last, fault)));
        let status = world.give(DESTROY_ALL).await.gone();
        assert_eq!((status.left, world.lock().emptied), (vec![], 0), "{fault:?}");
        world.set_fault(None);
        let (arrived, _) = world.give_over(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, world.lock().emptied), (RunOutcome::Gone, 1), "{fault:?}");
    }
}

/// A failed read or a cancellation at that point does not change the outcome.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_a_recorded_end_is_gone() {
    let is_gone_noted = |world: &World| {
        let state = world.lock();
        state.holds().values().flat_map(|files| files.values()).any(|text| text.contains("\"lifecycle\":\"Deleted\""))
    };
    let twin = World::removing(1).await;
    twin.set_fault(None);
    twin.give(DESTROY_ALL).await.arrived();
    let (calls, mut after) = (twin.lock().calls.len(), 0);
    for call in 1..=calls {
        let world = World::removing(1).await;
        let was_noted = {
            world.set_fault(Some((call, Fault::KilledBefore)));
            drop(world.give(DESTROY_ALL).await);
            is_gone_noted(&world)
        };
        if !was_noted {
            continue;
        }
        after += 1;
        let world = World::removing(1).await;
        world.set_fault(Some((call, Fault::Fails)));
        world.give(DESTROY_ALL).await.gone();
        // One more read of VMs or nodes is too many.
        let last = world.lock().calls.iter().rposition(|call| call.0 == "remove_emptied").unwrap();
        let looks = world.lock().calls[last..].iter().filter(|call| call.0 == "vms").count();
        assert!(looks <= 2, "{looks} looks");
    }
    assert!(after > 0, "nothing comes after that note");
    let world = World::removing(1).await;
    let (cancel, cancelled) = watch::channel(false);
    let told = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Begun(Action::Gone)) {
            cancel.send_replace(true);
        }
    };
    let gone = world.acting_until(cancelled, &told, async |deploy| deploy.go(DESTROY_ALL, TakeOver::FromTheDead).await);
    assert_eq!(gone.await.unwrap().0, RunOutcome::Gone);
}
