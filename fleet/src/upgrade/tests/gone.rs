//! VMs that the inventory no longer shows: gone, or only out of sight.

use uuid::Uuid;

use super::command::{Given, deployment, end, entries, give};
use super::failing::{before, stop_before, turns, world};
use super::fake::{Ill, World, data, disk, old_vm, stamp};
use crate::hypervisor::{DiskRef, PowerState};
use crate::upgrade::entry::{Entry, Event};
use crate::upgrade::{Action, Direction, Mode, Order, Outcome, Progress, Reason, Request, Step, plan};

async fn upgraded(nodes: usize) -> World {
    let world = world(nodes, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world
}

#[tokio::test(start_paused = true)]
async fn unlisted_new_vm_keeps_its_old_vm_off() {
    for found_by_uuid in [true, false] {
        let world = upgraded(1).await;
        let new = world.new_vm("cp1").uuid();
        world.move_away(new);
        if !found_by_uuid {
            world.lock().unfound.insert(new);
        }
        let reason = give(&world, Request::Rollback).await.paused();
        let how = if found_by_uuid { "there is cp1-bbbbbbb" } else { "cp1 answers from it" };
        assert!(reason.contains(how) && reason.ends_with("[upgrade.vm-gone]"), "{reason}");
        assert_eq!(world.old_vm("cp1").power, PowerState::Off);
        assert_eq!(world.called("attach") + world.called("power_on"), 0);
        world.lock().unlisted.clear();
        world.lock().unfound.clear();
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_new_vm_is_no_dead_end() {
    let world = before(1, Step::of(Action::Attach, 0)).await;
    world.delete_vm(world.new_vm("cp1").uuid());
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn old_vm_vanishing_during_gate_causes_no_rollback() {
    for action in [Action::Attach, Action::PowerOn, Action::Gate] {
        let world = before(3, Step::of(action, 0)).await;
        world.delete_vm(old_vm("cp2"));
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded, "{action:?}");
        assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
    }
}

#[tokio::test(start_paused = true)]
async fn old_vm_deleted_after_new_stopped_is_reported() {
    for action in [Action::FenceNew, Action::DetachNew, Action::AttachOld, Action::PowerOnOld] {
        let world = upgraded(1).await;
        stop_before(&world, Request::Rollback, Step::of(action, 0)).await;
        world.delete_vm(old_vm("cp1"));
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.contains("the VM cp1 (") && reason.ends_with("[upgrade.vm-gone]"), "{action:?}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn unhealthy_node_without_old_vm_stays() {
    let world = before(1, Step::of(Action::Gate, 0)).await;
    world.lock().ill = Ill::NeverGood;
    world.delete_vm(old_vm("cp1"));
    give(&world, Request::Resume).await.pauses(&["no rollback is possible", "of cp1"]);
    assert!(turns(&world).await.is_empty());
    world.lock().ill = Ill::Well;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn rollback_that_would_stick_is_refused_first() {
    let world = upgraded(3).await;
    world.delete_vm(old_vm("cp1"));
    let Given::Failed(error) = give(&world, Request::Rollback).await else { panic!("it is taken") };
    let error = error.to_string();
    assert!(error.contains("of cp1") && error.ends_with("nothing was changed"), "{error}");
    assert_eq!(deployment(&world, &|_| {}).status().await.unwrap().direction, Direction::Forward);
    assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
}

#[tokio::test(start_paused = true)]
async fn node_rolled_back_is_no_longer_replaced() {
    let plan = World::of(1, Mode::Rolling, Ill::Well).plan().await;
    let done = |action| {
        let step = Step::of(action, 0);
        let note = "it was replaced".to_owned();
        [
            Event::Begun { step, disk: None, vm: None, copy: None, datastore: None, settings: None },
            Event::Done { step, note, vm: None, replaced: true, copies: Vec::new() },
        ]
    };
    let turn = |direction| {
        let reason = Reason::new("upgrade.asked", "a test");
        Event::DirectionChanged { direction, only: Some(0), order: Order::LastFirst, left_out: [].into(), reason }
    };
    let mut events = vec![Event::Planned { plan: Box::new(plan.clone()) }];
    events.extend(done(Action::CloneVm));
    events.push(turn(Direction::Back));
    events.extend(done(Action::DestroyNew));
    let entries = |events: &[Event]| -> Vec<Entry> {
        events.iter().map(|event| Entry { at: 0, lease: 1, event: event.clone() }).collect()
    };
    assert!(Progress::of(&plan, &entries(&events)).is_replaced(0));
    events.push(turn(Direction::Forward));
    assert!(!Progress::of(&plan, &entries(&events)).is_replaced(0));
}

/// The fake hypervisor's words for a VM that is out of the folders that are searched.
const PLACE: &str = "would not be searched for";
/// The remedy if it is a copy. A commit would destroy a copy that was moved back, and a rollback would run it.
const IF_COPY: &str = "a copy that backup software has restored, remove it or take its stamp (kaas.stamp) away";

#[tokio::test(start_paused = true)]
async fn plan_names_a_moved_old_vm() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    world.move_away(old_vm("cp2"));
    let inventory = world.inventory().await;
    let refusals = plan(&inventory, &world.target, &world.options, Uuid::from_u128(0x2d)).unwrap_err().0;
    let [refused] = refusals.as_slice() else { panic!("{refusals:?}") };
    assert_eq!((refused.code, &*refused.subject), ("upgrade.vm-moved", "cp2"));
    assert!(refused.reason.contains(PLACE) && !refused.reason.contains("stamped"), "{}", refused.reason);
}

#[tokio::test(start_paused = true)]
async fn old_vm_moved_before_shutdown_is_not_gone() {
    let world = before(1, Step::of(Action::ShutDown, 0)).await;
    world.move_away(old_vm("cp1"));
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.contains(PLACE) && reason.ends_with("[upgrade.vm-moved]"), "{reason}");
    assert!(reason.contains("is not gone") && reason.contains(IF_COPY) && turns(&world).await.is_empty(), "{reason}");
    world.lock().unlisted.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn rollback_names_a_moved_vm_and_waits() {
    let world = upgraded(3).await;
    world.move_away(old_vm("cp1"));
    let Given::Failed(error) = give(&world, Request::Rollback).await else { panic!("it is taken") };
    let error = error.to_string();
    assert!(error.contains(PLACE) && error.contains("is not gone") && error.contains("[upgrade.vm-moved]"), "{error}");
    assert!(error.contains(IF_COPY), "{error}");
    assert!(error.ends_with("nothing was changed") && !error.contains("no rollback is possible"), "{error}");
    assert_eq!(deployment(&world, &|_| {}).status().await.unwrap().direction, Direction::Forward);
    world.lock().unlisted.clear();
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn commit_waits_for_an_unlisted_old_vm() {
    let world = upgraded(3).await;
    world.move_away(old_vm("cp1"));
    let reason = give(&world, Request::Commit).await.paused();
    assert!(reason.contains("the VM cp1 (") && reason.contains(PLACE) && reason.contains(IF_COPY), "{reason}");
    assert!(reason.ends_with("[upgrade.vm-moved]"), "{reason}");
    assert!(
        !entries(&world).await.iter().any(|entry| matches!(entry.event, Event::Ended { outcome: Outcome::Committed }))
    );
    world.lock().unlisted.clear();
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
}

/// It was removed before the commit was interrupted, and backup software keeps a replica of it, with a separate disk.
#[tokio::test(start_paused = true)]
async fn replica_of_gone_old_vm_blocks_no_commit() {
    let world = upgraded(3).await;
    world.delete_vm(old_vm("cp1"));
    world.add_own("replica", old_vm("cp1"), |machine| {
        (machine.vm.stamp, machine.ours) = (stamp("cp1", None), false);
        machine
            .vm
            .disks
            .push(data(DiskRef { uuid: Uuid::from_u128(0xbad), path: "[replicas] cp1/data.vmdk".to_owned() }));
    });
    world.move_away(old_vm("cp1"));
    assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
}

/// A copy with the stamp: the node runs, and its VM is the other one.
#[tokio::test(start_paused = true)]
async fn replica_of_a_new_vm_blocks_no_commit() {
    for is_copy in [false, true] {
        let world = upgraded(3).await;
        let new = world.new_vm("cp1");
        world.add_own("replica", new.uuid(), |machine| {
            (machine.vm.stamp, machine.ours) = (new.stamp.clone(), false);
            let own = if is_copy { disk("cp1").uuid } else { Uuid::from_u128(0xbad) };
            machine.vm.disks.push(data(DiskRef { uuid: own, path: "[replicas] cp1/data.vmdk".to_owned() }));
        });
        let replica = world.lock().machines.last().unwrap().vm.reference.id.clone();
        world.lock().unlisted.insert(replica);
        let given = give(&world, Request::Commit).await;
        if is_copy {
            let reason = given.paused();
            assert!(reason.ends_with("[upgrade.vm-copied]"), "{reason}");
        } else {
            assert_eq!(given.outcome(), Outcome::Committed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn abandoning_names_a_moved_old_vm() {
    let world = upgraded(1).await;
    world.move_away(old_vm("cp1"));
    let (_, status) = give(&world, Request::Abandon).await.arrived();
    let told: Vec<String> = status
        .entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Done { step, note, .. } if step.action == Action::Keep => Some(note.clone()),
            _ => None,
        })
        .collect();
    assert!(told.iter().any(|note| note.contains(PLACE)), "{told:?}");
    assert!(!told.iter().any(|note| note.contains("it has no other VM")), "{told:?}");
    // No node says its BIOS UUID now: the last upgrade has noted it.
    assert!(world.inventory().await.moved.contains_key(&old_vm("cp1")));
}
