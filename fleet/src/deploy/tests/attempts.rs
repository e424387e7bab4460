//! What somebody, or a guest, undoes each time: one command does it three times, and the next one tries it again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::fake::{World, wanted};
use crate::deploy::{Arrived, Wait, Wish};

async fn given(world: &World) -> Arrived {
    world.set_fault(None);
    let wanted = wanted(1);
    // Nobody waits for so long.
    let given = timeout(Duration::from_secs(24 * 3600), world.give(Wish::Deploy(&wanted))).await;
    given.expect("it goes on without an end").arrived().0
}

/// Is stopped by this alone, having called so often.
async fn is_undone(world: &World, call: &str) -> Wait {
    let arrived = given(world).await;
    let Arrived::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(world.lock().calls.iter().filter(|(name, _)| *name == call).count(), 3, "{call}");
    let [wait] = <[Wait; 1]>::try_from(waits).unwrap();
    assert_eq!((wait.node.as_deref(), wait.reason.code.as_str()), (Some("cp1"), "deploy.vm-undone"));
    wait
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_never_made_whole_is_made_three_times() {
    let world = World::new();
    world.lock().spoils = true;
    for _ in 0..2 {
        let wait = is_undone(&world, "add").await;
        assert!(wait.reason.words.contains("somebody has changed it"), "{wait}");
        assert_eq!((world.own().len(), world.free_disks().len()), (0, 0), "half of it is left");
    }
    world.lock().spoils = false;
    let arrived = given(&world).await;
    assert!(matches!(arrived, Arrived::Up(_)), "{arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_goes_off_at_once_is_powered_on_three_times() {
    let world = World::new();
    world.lock().goes_off = true;
    for _ in 0..2 {
        let wait = is_undone(&world, "power_on").await;
        assert!(wait.reason.words.contains("is off each time"), "{wait}");
    }
    world.lock().goes_off = false;
    let arrived = given(&world).await;
    assert!(matches!(arrived, Arrived::Up(_)), "{arrived:?}");
}

/// A host that is away for a while.
#[tokio::test(start_paused = true)]
async fn a_call_of_which_nothing_came_is_made_until_the_command_pauses() {
    for call in ["add", "power_on"] {
        let world = World::new();
        world.lock().lost = Some((call, 5));
        let arrived = given(&world).await;
        assert!(matches!(arrived, Arrived::Up(_)), "{call}: {arrived:?}");
        assert_eq!(world.lock().lost, Some((call, 0)));
        // One that stays away pauses it, for it waits.
        let world = World::new();
        world.lock().lost = Some((call, usize::MAX));
        let arrived = given(&world).await;
        assert!(matches!(arrived, Arrived::Paused(_)), "{call}: {arrived:?}");
    }
}

/// As a controller does. Half a VM may leave its disk each time.
#[tokio::test(start_paused = true)]
async fn a_process_that_gives_the_command_again_and_again_makes_half_a_vm_three_times_at_most() {
    let world = World::new();
    {
        let mut state = world.lock();
        (state.restorable, state.spoils, state.process) = (true, true, Some(Arc::default()));
    }
    for made in [3, 0] {
        let arrived = given(&world).await;
        let Arrived::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert_eq!(world.lock().calls.iter().filter(|(name, _)| *name == "add").count(), made);
        let [wait] = <[Wait; 1]>::try_from(waits).unwrap();
        assert_eq!(wait.reason.code, "deploy.vm-undone");
        assert!(wait.reason.words.contains("somebody has changed it"), "{wait}");
        assert!(wait.reason.words.contains("until it is described otherwise"), "{wait}");
    }
    world.lock().spoils = false;
    let arrived = given(&world).await;
    assert!(matches!(arrived, Arrived::Stopped(_)), "{arrived:?}");
    let mut otherwise = wanted(1);
    otherwise.size.memory *= 2;
    let (arrived, _) = world.give(Wish::Deploy(&otherwise)).await.arrived();
    assert!(matches!(arrived, Arrived::Up(_)), "{arrived:?}");
}
