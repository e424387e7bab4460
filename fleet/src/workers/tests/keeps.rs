//! Workers whose VMs are kept once they have left: off, on no network, with all their disks, and nobody's.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::fake::{Fault, Given, World, node_on, pool, remove};
use super::stories::codes;
use crate::hypervisor::PowerState;
use crate::upgrade::Reason;
use crate::workers::{Action, Goal, Inventory, Next, Removal, State, WorkerRecord, next, reason};

/// Where a call of this name is the first one, while a worker leaves whose VM is to be kept.
async fn first(call: &str) -> usize {
    let world = leaving().await;
    world.set_fault(None);
    world.give(remove("t-w1")).await.done();
    world.lock().calls.iter().position(|(name, _)| *name == call).expect("such a call") + 1
}

/// Two workers, of which the first one's VM is to be kept, with a data disk.
async fn leaving() -> World {
    let world = World::with(2).await;
    world.lock().add_disk("t-w1");
    world.has_removed_by("t-w1", Removal::Keep).await;
    world
}

/// How often VMs were changed in these ways, one after the other.
fn changes(world: &World) -> Vec<&'static str> {
    let all = ["shut_down", "delete_node", "connect", "detach", "release", "destroy"];
    world.lock().calls.iter().map(|(name, _)| *name).filter(|name| all.contains(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_kept_leaves_the_networks_and_its_pool_and_holds_its_disks() {
    let world = leaving().await;
    let vm = world.lock().machines.iter().find(|machine| machine.vm.disks.len() == 1).unwrap().vm.clone();
    world.set_fault(None);
    let begun = Instant::now();
    let status = world.give(remove("t-w1")).await.done();
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits until it counts as gone: {:?}", begun.elapsed());
    assert_eq!((status.workers.len(), world.own()), (1, vec!["t-w2".to_owned()]));
    assert_eq!(changes(&world), ["shut_down", "delete_node", "connect", "connect", "release"]);
    let all = world.given_up();
    let [kept] = &all[..] else { panic!("{all:?}") };
    assert_eq!(kept.name, format!("t-w1-kept-{}", &vm.uuid().to_string()[..8]));
    assert_eq!((kept.uuid(), &kept.disks, kept.is_fenced()), (vm.uuid(), &vm.disks, true));
    let of = kept.stamp.as_ref().map(|stamp| (stamp.node.as_str(), stamp.swap));
    assert_eq!(of, Some(("t-w1", vm.stamp.unwrap().swap)));
    // Whoever looks once more finds nothing of it.
    assert!(world.kept().await.unwrap().machine("t-w1").is_none());
    world.give(Goal::Add(1)).await.done();
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w2".to_owned(), "t-w3".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn that_a_vm_was_given_up_is_seen_where_the_answer_is_lost() {
    let at = first("release").await;
    for fault in [Fault::Lost, Fault::Late, Fault::KilledAfter] {
        let world = leaving().await;
        world.set_fault(Some((at, fault)));
        let begun = Instant::now();
        let given = world.give(remove("t-w1")).await;
        if fault.kills() {
            assert!(matches!(given, Given::Killed), "{given:?}");
            world.set_fault(None);
            let kept = world.status().await.unwrap().unwrap().workers[0].kept.clone();
            assert!(kept.is_some_and(|name| name.starts_with("t-w1-kept-")), "its machine is there, and tells");
            world.give_over(Goal::GoOn).await.done();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{fault:?}: {:?}", begun.elapsed());
        assert_eq!((world.own(), world.given_up().len()), (vec!["t-w2".to_owned()], 1), "{fault:?}");
    }
}

/// Backup software keeps it where nobody looks, stamp and all.
#[tokio::test(start_paused = true)]
async fn a_replica_of_a_vm_that_is_kept_is_not_given_up_with_it() {
    let world = leaving().await;
    let replica = {
        let mut state = world.lock();
        let replica = state.copy_vm("t-w1");
        replica.disks.clear();
        let replica = replica.clone();
        state.away.insert(replica.reference.id.clone());
        replica
    };
    world.give(remove("t-w1")).await.done();
    assert_eq!(world.given_up().len(), 1);
    assert!(world.lock().machines.iter().any(|machine| machine.vm == replica), "it was touched");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_made_to_the_end_is_kept_by_nobody() {
    let world = World::killed_while_adding("add.end", Fault::KilledBefore).await;
    world.has_removed_by("t-w2", Removal::Keep).await;
    world.give_over(Goal::GoOn).await.done();
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w1".to_owned(), "t-w3".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_not_to_be_kept_any_more_is_destroyed() {
    let at = first("connect").await;
    let world = leaving().await;
    world.set_fault(Some((at, Fault::KilledAfter)));
    assert!(matches!(world.give(remove("t-w1")).await, Given::Killed));
    world.set_fault(None);
    world.has_removed_by("t-w1", Removal::Destroy).await;
    world.give_over(Goal::GoOn).await.done();
    assert!(changes(&world).ends_with(&["detach", "destroy"]), "{:?}", changes(&world));
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w2".to_owned()], 0));
}

/// What is kept of it was turned back: it is gone at once, and is nobody's newer VM.
#[tokio::test(start_paused = true)]
async fn for_a_member_whose_vm_was_given_up_since_another_worker_comes() {
    let world = leaving().await;
    world.lock().restorable = true;
    let before = world.kept().await.unwrap();
    world.give(remove("t-w1")).await.done();
    let kept = world.given_up();
    world.keep(before).await;
    let status = world.status().await.unwrap().unwrap();
    assert!(status.newer.is_empty() && status.workers[0].kept.as_ref() == Some(&kept[0].name), "{status:?}");
    let begun = Instant::now();
    world.give(Goal::GoOn).await.done();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!((world.own(), world.given_up()), (vec!["t-w2".to_owned(), "t-w3".to_owned()], kept));
}

/// Whoever may change its settings can stamp one so that runs, and lay a copy beside it that does not; or stamp that as another's.
#[tokio::test(start_paused = true)]
async fn a_vm_that_is_stamped_as_given_up_and_runs_is_out_of_sight_for_a_minute_at_least() {
    for (is_copied, is_anothers) in [(false, false), (true, false), (true, true)] {
        let world = leaving().await;
        let before = world.kept().await.unwrap();
        world.give(remove("t-w1")).await.done();
        world.keep(before).await;
        {
            let mut state = world.lock();
            let is_nobodys = |machine: &super::fake::Machine| machine.vm.name.starts_with("t-w1-kept-");
            let at = state.machines.iter().position(is_nobodys).unwrap();
            if is_copied {
                let mut other = state.machines[at].clone();
                other.vm.reference.id.push_str("-other");
                state.machines.push(other);
            }
            let other = if is_copied { state.machines.last_mut() } else { state.machines.get_mut(at) }.unwrap();
            if is_anothers {
                other.vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbad);
            } else {
                other.vm.power = PowerState::On;
            }
        }
        let begun = Instant::now();
        world.give(Goal::GoOn).await.done();
        let told = format!("copied {is_copied}, another's {is_anothers}");
        assert!(begun.elapsed() >= Duration::from_secs(60), "{told}: {:?}", begun.elapsed());
        assert_eq!(world.own(), ["t-w2", "t-w3"], "{told}");
        let nobodys = 1 + usize::from(is_copied && !is_anothers);
        assert_eq!(world.given_up().len(), nobodys, "{told}");
    }
}

/// Nobody makes a second VM of its BIOS UUID.
#[test]
fn one_whose_vm_was_given_up_before_anything_is_noted_of_it_is_not_made() {
    let mut pool = pool(1);
    pool.last_index = 1;
    let id = Uuid::from_u128(7);
    let machine = WorkerRecord { allocated_uuid: Some(id), ..WorkerRecord::new(&pool, id, None, 0) };
    let decided = |seen: &Inventory| {
        let [action] = <[Action; 1]>::try_from(next(&pool, std::slice::from_ref(&machine), seen).actions).unwrap();
        action
    };
    assert!(matches!(decided(&Inventory::default()), Action::Import(_)));
    let kept = [(machine.name.clone(), "t-w1-kept-00000000".to_owned())].into();
    // As long as it may run its address is nobody else's.
    let runs = Inventory { kept, ..Inventory::default() };
    assert!(next(&pool, std::slice::from_ref(&machine), &runs).actions.is_empty());
    let gone = || [machine.name.clone()].into();
    let node = |provider: Uuid| node_on(&machine.name, &format!("vsphere://{provider}"));
    let ready = Inventory { gone: gone(), nodes: vec![node(id)], ..runs };
    let Next { actions, waits, .. } = next(&pool, std::slice::from_ref(&machine), &ready);
    assert!(
        actions.is_empty()
            && waits[0]
                .reason
                .words
                .ends_with("t-w1-kept-00000000 now, which runs, is on a network or exists twice: power it off"),
        "{waits:?}"
    );
    let seen = Inventory { nodes: vec![node(Uuid::from_u128(8))], ..ready };
    assert!(matches!(decided(&seen), Action::Leave(_, Reason { code, .. }) if code == reason::GIVEN_UP));
}

/// What is kept was turned back to before its VM was noted.
#[tokio::test(start_paused = true)]
async fn beside_a_vm_that_is_stamped_as_another_deployments_none_is_made_with_its_uuid() {
    let world = World::with(1).await;
    world.lock().restorable = true;
    let mut before = world.kept().await.unwrap();
    let uuid = before.machines[0].bios_uuid.unwrap();
    for machine in &mut before.machines {
        (machine.state, machine.bios_uuid, machine.joined_seconds, machine.expires) =
            (State::Provisioning, None, None, 0);
    }
    for machine in world.lock().machines.iter_mut().filter(|machine| machine.vm.uuid() == uuid) {
        machine.vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbad);
    }
    world.keep(before).await;
    for wish in [Goal::GoOn, Goal::Scale(0)] {
        let (arrived, _) = world.give(wish).await.arrived();
        assert_eq!(codes(&arrived), ["workers.vm-odd"]);
        let with = world.lock().machines.iter().filter(|machine| machine.vm.uuid() == uuid).count();
        assert_eq!((with, world.own().len()), (1, 0));
        assert!(world.kept().await.unwrap().machine("t-w1").is_some(), "its address is nobody else's");
    }
}

/// Whether it may run is what a look says, also to the command that has given it up.
#[tokio::test(start_paused = true)]
async fn one_that_is_powered_on_as_soon_as_it_was_given_up_is_out_of_sight_for_a_minute() {
    let world = leaving().await;
    let nobodys = |machine: &&mut super::fake::Machine| machine.vm.name.starts_with("t-w1-kept-");
    world.set_fault(Some((first("release_name").await, Fault::Fails)));
    let begun = Instant::now();
    let powered = async {
        while world.given_up().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.lock().machines.iter_mut().find(nobodys).unwrap().vm.power = PowerState::On;
    };
    tokio::join!(async { world.give(remove("t-w1")).await.done() }, powered);
    assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
}
