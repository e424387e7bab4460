//! A command whose store or hypervisor does not answer. If it is cancelled, it ends soon and releases the lease. Otherwise it
//! waits, and asks from time to time.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::fake::{DESTROY, DESTROY_ALL, State, World, wanted};
use crate::control_plane::{DeployStatus, Goal, Notice, RunOutcome, records};
use crate::hypervisor::{DiskRef, PowerState};
use crate::lease::TakeOver;

/// A cluster that does not form, or one whose VM has a snapshot. A deployment of the first one waits, and also a removal of the
/// second.
async fn waits(wish: Goal<'_>) -> World {
    if matches!(wish, Goal::Deploy(_)) {
        return World::unhealthy();
    }
    let world = World::with(1).await;
    for machine in world.lock().machines.iter_mut().filter(|machine| machine.vm.power == PowerState::On) {
        machine.vm.snapshots.push("backup".to_owned());
    }
    world
}

/// Gives a command, and cancels it this number of seconds after `is_due`. Returns its status, and for how long it continued.
async fn cancelled(
    (world, wish): (&World, Goal<'_>),
    told: &(dyn Fn(&Notice<'_>) + Sync),
    is_due: impl Fn() -> bool,
    (seconds, what): (u64, &str),
) -> (DeployStatus, Duration) {
    let (cancel, cancelled) = watch::channel(false);
    let gone = world.acting_until(cancelled, told, async |deploy| deploy.go(wish, TakeOver::FromTheDead).await);
    let asks = async {
        while !is_due() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        cancel.send_replace(true);
        Instant::now()
    };
    // Long enough for every other command to be paused.
    let ended = timeout(Duration::from_secs(3600), async { tokio::join!(gone, asks) }).await;
    let (gone, asked) = ended.unwrap_or_else(|_| panic!("it waits for {what}"));
    let (arrived, status) = gone.unwrap();
    assert_eq!(arrived, RunOutcome::Cancelled, "{what}");
    (status, asked.elapsed())
}

/// Part of the world hangs from the moment at which the command waits. Soon after that it is cancelled.
async fn is_given_back(wish: Goal<'_>, hangs: fn(&mut State)) {
    let world = waits(wish).await;
    let hung = Mutex::new(false);
    let told = |notice: &Notice<'_>| {
        let mut hung = hung.lock().unwrap();
        if matches!(notice, Notice::Waits(_)) && !*hung {
            *hung = true;
            hangs(&mut world.lock());
        }
    };
    let is_due = || *hung.lock().unwrap();
    let (status, took) = cancelled((&world, wish), &told, is_due, (3, "what it looks at")).await;
    assert!(!status.looked && !status.done, "{status:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let state = world.lock();
    assert!(state.holds().values().next_back().unwrap().contains_key("released"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_command_waits_for_no_journal() {
    let wanted = wanted(1);
    for wish in [Goal::Deploy(&wanted), DESTROY] {
        is_given_back(wish, |state| state.listing_hangs = true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_command_waits_for_no_vms() {
    let wanted = wanted(1);
    for wish in [Goal::Deploy(&wanted), DESTROY] {
        is_given_back(wish, |state| state.inventory_hangs = true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_command_waits_for_no_unpermitted_call() {
    let wanted = wanted(1);
    let makes = ["staged", "stage", "add", "power_on"].map(|call| (Goal::Deploy(&wanted), call));
    let removes = ["detach", "destroy", "has_disk", "delete_disk", "remove_emptied"].map(|call| (DESTROY_ALL, call));
    for (wish, call) in makes.into_iter().chain(removes) {
        let world = if matches!(wish, Goal::Deploy(_)) { World::new() } else { World::with(1).await };
        world.lock().removes_used = true;
        world.lock().hangs = Some(call);
        let told = |notice: &Notice<'_>| log::trace!("{notice:?}");
        let (_, took) = cancelled((&world, wish), &told, || world.lock().hung, (3, call)).await;
        assert!(took < Duration::from_secs(30), "{call}: {took:?}");
        assert!(world.lock().holds().values().next_back().unwrap().contains_key("released"), "{call}");
        // The next command continues.
        world.lock().hangs = None;
        let (arrived, status) = world.give(wish).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_) | RunOutcome::Gone), "{call}: {arrived:?}");
        assert!(status.left.is_empty(), "{call}: {arrived:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_is_asked_once_a_minute() {
    let world = World::unhealthy();
    let told = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Waits(_)) {
            let mut state = world.lock();
            // It forms, which is to be recorded.
            (state.ill, state.store_hangs) = (false, true);
        }
    };
    let (_cancel, cancelled) = watch::channel(false);
    let wanted = wanted(1);
    let wish = Goal::Deploy(&wanted);
    let gone = world.acting_until(cancelled, &told, async |deploy| deploy.go(wish, TakeOver::FromTheDead).await);
    let (arrived, _) = gone.await.unwrap();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    // It waits for two minutes.
    let asked = world.lock().asked_in_vain;
    assert!((2..=4).contains(&asked), "{asked} questions");
}

/// The disk of the cluster, which may be removed.
fn its_disk(world: &World) -> DiskRef {
    let mut state = world.lock();
    state.removes_used = true;
    state.machines.iter().find_map(|it| Some(it.vm.disks.first()?.reference.clone())).unwrap()
}

/// Moves a disk, and removes the cluster.
async fn goes_once_moved(world: &World, disk: Uuid) -> (RunOutcome, DeployStatus) {
    world.lock().hangs = None;
    assert!(world.lock().disks.remove(&disk).is_some(), "it was removed");
    world.give(DESTROY_ALL).await.arrived()
}

/// The disk is moved before the next command.
#[tokio::test(start_paused = true)]
async fn a_cancelled_command_withdraws_unrequested_removals() {
    for was_asked in [false, true] {
        let world = World::with(1).await;
        let disk = its_disk(&world).uuid;
        // The first request fails, and it is repeated.
        world.lock().disks_locked = was_asked;
        world.lock().hangs = (!was_asked).then_some("delete_disk");
        let told = |notice: &Notice<'_>| {
            let mut state = world.lock();
            if matches!(notice, Notice::Waits(_)) && state.calls.iter().any(|call| call.0 == "delete_disk") {
                state.hangs = Some("delete_disk");
            }
        };
        // It hangs at the removal of a disk, which is recorded and not permitted.
        cancelled((&world, DESTROY_ALL), &told, || world.lock().hung, (0, "delete_disk")).await;
        let (arrived, status) = goes_once_moved(&world, disk).await;
        let left: Vec<_> = status.left.iter().map(|left| left.uuid).collect();
        assert_eq!((arrived, left), (RunOutcome::Gone, vec![disk]), "asked for: {was_asked}");
        assert_eq!(status.doubtful, if was_asked { vec![disk] } else { vec![] }, "asked for: {was_asked}");
    }
}

/// The store does not confirm the lease in time: the command pauses, and tries it again.
#[tokio::test(start_paused = true)]
async fn a_cancelled_command_withdraws_an_unpermitted_removal() {
    for is_tried_again in [false, true] {
        let world = World::with(1).await;
        let disk = its_disk(&world).uuid;
        world.lock().once_removal_is_noted = Some(|state| state.store_hangs = true);
        let (cancel, cancelled) = watch::channel(false);
        let told = |notice: &Notice<'_>| {
            let mut state = world.lock();
            if !matches!(notice, Notice::Waits(_)) || !state.store_hangs {
                return;
            }
            (state.once_removal_is_noted, state.store_hangs) = (None, false);
            if is_tried_again {
                state.hangs = Some("delete_disk");
            } else {
                cancel.send_replace(true);
            }
        };
        let gone =
            world.acting_until(cancelled, &told, async |deploy| deploy.go(DESTROY_ALL, TakeOver::FromTheDead).await);
        let asks = async {
            while is_tried_again && !world.lock().hung {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            if is_tried_again {
                cancel.send_replace(true);
            }
        };
        let ended = timeout(Duration::from_secs(3600), async { tokio::join!(gone, asks) }).await;
        let (gone, ()) = ended.expect("it does not end");
        let (arrived, status) = gone.unwrap();
        assert_eq!(arrived, RunOutcome::Cancelled, "tried again: {is_tried_again}");
        assert!(status.discarded.iter().any(|it| it.uuid == disk), "{status:?}");
        let (arrived, status) = goes_once_moved(&world, disk).await;
        let left: Vec<_> = status.left.iter().map(|left| left.uuid).collect();
        assert_eq!((arrived, left), (RunOutcome::Gone, vec![disk]), "tried again: {is_tried_again}");
        assert!(status.doubtful.is_empty(), "tried again: {is_tried_again}");
    }
}

/// It was not permitted, and then a VM holds the disk, about which the operator must decide.
#[tokio::test(start_paused = true)]
async fn a_stopped_command_withdraws_an_unpermitted_removal() {
    let world = World::with(1).await;
    let disk = its_disk(&world);
    world.lock().once_removal_is_noted = Some(|state| state.store_hangs = true);
    let told = |notice: &Notice<'_>| {
        if !matches!(notice, Notice::Waits(_)) || !world.lock().store_hangs {
            return;
        }
        world.plant("stray", "cp1", 0x77);
        world.hang("stray", &disk);
        let mut state = world.lock();
        (state.once_removal_is_noted, state.store_hangs) = (None, false);
    };
    let (_cancel, cancelled) = watch::channel(false);
    let gone = world.acting_until(cancelled, &told, async |deploy| deploy.go(DESTROY_ALL, TakeOver::FromTheDead).await);
    let (arrived, _) = gone.await.unwrap();
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    let kept = records::read(&world).await.unwrap().unwrap();
    assert!(kept.disks_to_delete.contains(&disk) && kept.requested_disk_deletions.is_empty(), "{kept:?}");
}
