//! The end of a command that has done what it was for: nothing that fails then takes that from it.

use super::fake::{DESTROY_ALL, Fault, World, wanted};
use crate::deploy::{Arrived, Wish};

#[tokio::test(start_paused = true)]
async fn who_cannot_look_a_last_time_is_given_the_kubeconfig_and_clears_away_all_the_same() {
    let begun = async || {
        let world = World::with(1).await;
        world.lock().removes_used = true;
        world
    };
    let wanted = wanted(1);
    for (wish, emptied) in [(Wish::Deploy(&wanted), 0), (DESTROY_ALL, 1)] {
        let twin = begun().await;
        twin.set_fault(None);
        twin.give(wish).await.arrived();
        let last = 1 + twin.lock().calls.iter().rposition(|call| call.0 == "vms").unwrap();
        // Which VMs there are nobody says, or which upgrade was the last one.
        for number in [last, last - 1] {
            let world = begun().await;
            world.set_fault(Some((number, Fault::Fails)));
            let (arrived, status) = world.give(wish).await.arrived();
            assert!(matches!(arrived, Arrived::Up(_) | Arrived::Gone), "{arrived:?}");
            assert_eq!((status.looked, world.lock().emptied), (false, emptied), "{status:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_is_so_also_where_its_place_cannot_be_removed() {
    let begun = async || {
        let world = World::with(1).await;
        world.lock().removes_used = true;
        world
    };
    let twin = begun().await;
    twin.set_fault(None);
    twin.give(DESTROY_ALL).await.arrived();
    let last = 1 + twin.lock().calls.iter().rposition(|call| call.0 == "store.exists").unwrap();
    for fault in [Fault::Fails, Fault::Overtaken] {
        let world = begun().await;
        world.set_fault(Some((last, fault)));
        let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, status.left, world.lock().emptied), (Arrived::Gone, vec![], 0), "{fault:?}");
        world.set_fault(None);
        let (arrived, _) = world.give_over(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, world.lock().emptied), (Arrived::Gone, 1), "{fault:?}");
    }
}
