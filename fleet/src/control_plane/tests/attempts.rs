//! An effect that is undone each time, by a client or a guest. One command repeats it three times, and the next one tries again.
//! A process that repeats its command creates a VM three times, and then once an hour.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance, timeout};
use uuid::Uuid;

use super::fake::{DEPLOYMENT, Fault, State, World, vm, wanted};
use crate::control_plane::attempts::Attempts;
use crate::control_plane::{Action, Goal, Inventory, RunOutcome, Unfinished, Wait};
use crate::hypervisor::Stamp;

async fn given(world: &World) -> RunOutcome {
    world.set_fault(None);
    ended(world, 1).await
}

/// The outcome of a command for so many nodes.
async fn ended(world: &World, nodes: u8) -> RunOutcome {
    let wanted = wanted(nodes);
    // No command waits for so long.
    let given = timeout(Duration::from_secs(24 * 3600), world.give(Goal::Deploy(&wanted))).await;
    given.expect("it goes on without an end").arrived().0
}

/// A world in which one process gives all commands, and the record may be restored, as a controller's may. Each VM is damaged.
fn of_a_controller() -> World {
    let world = World::new();
    {
        let mut state = world.lock();
        (state.restorable, state.spoils, state.process) = (true, true, Some(Arc::default()));
    }
    world
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// How many VMs are begun in this time by a process that gives the command again each minute, and the last outcome.
async fn begun_in(world: &World, nodes: u8, time: Duration) -> (usize, RunOutcome) {
    world.set_fault(None);
    let begins = Instant::now();
    loop {
        let arrived = ended(world, nodes).await;
        assert!(matches!(arrived, RunOutcome::Stopped(_) | RunOutcome::Paused(_)), "{arrived:?}");
        if begins.elapsed() >= time {
            return (adds(world), arrived);
        }
        advance(minutes(1)).await;
    }
}

fn adds(world: &World) -> usize {
    world.called("add")
}

/// Is stopped by this alone, after so many calls.
async fn is_undone(world: &World, call: &str) -> Wait {
    let arrived = given(world).await;
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(world.called(call), 3, "{call}");
    let [wait] = <[Wait; 1]>::try_from(waits).unwrap();
    assert_eq!((wait.node.as_deref(), wait.reason.code.as_str()), (Some("cp1"), "deploy.vm-undone"));
    wait
}

/// Each VM is damaged while it is incomplete, is removed once it is complete, or does not stay on.
#[tokio::test(start_paused = true)]
async fn each_failed_creation_is_tried_three_times() {
    type Damage = fn(&mut State, bool);
    let damages: [(Damage, _, _); 3] = [
        (|state, is| state.spoils = is, "add", "another client has changed it"),
        (|state, is| state.drops = is, "add", "is gone each time"),
        (|state, is| state.goes_off = is, "power_on", "is off each time"),
    ];
    for (damage, call, words) in damages {
        let world = World::new();
        damage(&mut world.lock(), true);
        for _ in 0..2 {
            let wait = is_undone(&world, call).await;
            assert!(wait.reason.words.contains(words), "{wait}");
            let left = (world.own().len(), world.free_disks().len());
            assert!(words != "another client has changed it" || left == (0, 0), "half of it is left");
        }
        damage(&mut world.lock(), false);
        let arrived = given(&world).await;
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    }
}

/// A host that is away for a while.
#[tokio::test(start_paused = true)]
async fn calls_without_effect_repeat_until_the_pause() {
    for call in ["add", "power_on"] {
        let world = World::new();
        world.lock().lost = Some((call, 5));
        let arrived = given(&world).await;
        assert!(matches!(arrived, RunOutcome::Up(_)), "{call}: {arrived:?}");
        assert_eq!(world.lock().lost, Some((call, 0)));
        // If the host stays away, the command pauses, because it waits.
        let world = World::new();
        world.lock().lost = Some((call, usize::MAX));
        let arrived = given(&world).await;
        assert!(matches!(arrived, RunOutcome::Paused(_)), "{call}: {arrived:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_vm_counts_once() {
    let spoilt = || {
        let world = World::new();
        world.lock().spoils = true;
        world
    };
    let twin = spoilt();
    given(&twin).await;
    let removal = 1 + twin.lock().calls.iter().position(|call| call.0 == "destroy").unwrap();
    for fault in [Fault::Fails, Fault::Lost, Fault::Late] {
        let world = spoilt();
        world.set_fault(Some((removal, fault)));
        let arrived = ended(&world, 1).await;
        assert!(matches!(arrived, RunOutcome::Stopped(_)), "{fault:?}: {arrived:?}");
        assert_eq!((adds(&world), world.own().len()), (3, 0), "{fault:?}");
    }
}

/// Each may leave its disk. A limit for one node ends each command, whatever it was about to do for another one.
#[tokio::test(start_paused = true)]
async fn a_process_limits_damaged_vms_of_each_node() {
    let world = of_a_controller();
    let (begun, arrived) = begun_in(&world, 3, minutes(50)).await;
    assert_eq!(begun, 9);
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(waits.len(), 3, "{waits:?}");
    for (wait, node) in waits.iter().zip(["cp1", "cp2", "cp3"]) {
        assert_eq!((wait.node.as_deref(), wait.reason.code.as_str()), (Some(node), "deploy.vm-undone"));
        let words = &wait.reason.words;
        assert!(words.contains("3 VMs were made for it") && words.contains("another client has changed it"), "{words}");
        assert!(words.contains("within the hour") && words.contains("restarted"), "{words}");
    }
    assert_eq!((world.own().len(), world.free_disks().len()), (0, 0), "half of one is left");
    for hour in 1..=2 {
        let (begun, arrived) = begun_in(&world, 3, minutes(60)).await;
        assert_eq!(begun, 3, "hour {hour}: {arrived:?}");
    }
}

/// Its command ends before it gets the result: the next one finds the incomplete VM.
#[tokio::test(start_paused = true)]
async fn an_incomplete_vm_of_a_slow_creation_counts() {
    let world = of_a_controller();
    world.lock().copying = minutes(5);
    let (begun, arrived) = begun_in(&world, 1, minutes(50)).await;
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    assert_eq!((begun, world.own().len(), world.free_disks().len()), (3, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_process_limits_complete_vms_that_are_removed() {
    let world = of_a_controller();
    {
        let mut state = world.lock();
        (state.spoils, state.drops) = (false, true);
    }
    let (begun, arrived) = begun_in(&world, 1, minutes(50)).await;
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    let words = &waits[0].reason.words;
    assert!(words.contains("is gone each time") && words.contains("within the hour"), "{words}");
    assert_eq!(begun, 3);
    assert_eq!(begun_in(&world, 1, minutes(60)).await.0, 1);
    world.lock().drops = false;
    advance(minutes(60)).await;
    let arrived = ended(&world, 1).await;
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn temporary_damage_delays_at_most_an_hour() {
    let world = of_a_controller();
    let (begun, _) = begun_in(&world, 3, minutes(30)).await;
    assert_eq!(begun, 9);
    world.lock().spoils = false;
    let arrived = ended(&world, 3).await;
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    advance(minutes(60)).await;
    let arrived = ended(&world, 3).await;
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert_eq!(adds(&world), 12);
}

/// A complete VM that was removed and is created again may be damaged three times before the limit.
#[tokio::test(start_paused = true)]
async fn a_complete_vm_resets_the_count() {
    let process = Unfinished::default();
    let attempts = Attempts::new(Some(&process));
    let uuid = Uuid::from_u128(1);
    let stamp = Stamp { deployment: DEPLOYMENT, node: "cp1".to_owned(), swap: None };
    let (made, make) = (vm("cp1", uuid, Some(stamp)), Action::CloneVm("cp1".to_owned()));
    let mut kept = Goal::Deploy(&wanted(1)).applied(DEPLOYMENT, None, &[]).unwrap();
    kept.nodes[0].allocated_uuid = Some(uuid);
    let seen = Inventory { vms: vec![made.clone()], ..Inventory::default() };
    for _ in 0..3 {
        assert_eq!(attempts.hinder(&kept, &make), None);
        attempts.makes(uuid);
        attempts.sees(&kept, &seen);
        attempts.removes(&kept, &made);
    }
    assert!(attempts.hinder(&kept, &make).is_some());
    kept.nodes[0].bios_uuid = Some(uuid);
    attempts.sees(&kept, &seen);
    assert_eq!(attempts.hinder(&kept, &make), None);
}
