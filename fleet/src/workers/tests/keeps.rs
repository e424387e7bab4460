//! Workers whose VMs are kept once they have left: off, on no network, with all their disks, and no longer managed.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::fake::{Fault, Given, World, node_on, pool, remove};
use crate::engine::Reason;
use crate::hypervisor::PowerState;
use crate::workers::{Action, Goal, Inventory, Next, Removal, State, WorkerRecord, next, reason};

/// The first call of this name while a worker leaves whose VM is kept.
async fn first(call: &str) -> usize {
    let world = leaving().await;
    world.set_fault(None);
    world.give(remove("t-w1")).await.done();
    world.first_call(call)
}

/// Two workers. The first one's VM, with a data disk, is to be kept.
async fn leaving() -> World {
    let world = World::with(2).await;
    world.lock().add_disk("t-w1");
    world.has_removed_by("t-w1", Removal::Keep).await;
    world
}

/// The changes of VMs of these kinds, in order.
fn changes(world: &World) -> Vec<&'static str> {
    let all = ["shut_down", "delete_node", "connect", "detach", "release", "destroy"];
    world.lock().calls.iter().map(|(name, _)| *name).filter(|name| all.contains(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_kept_vm_keeps_only_its_disks() {
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
    // The next command finds nothing of it.
    assert!(world.kept().await.unwrap().machine("t-w1").is_none());
    world.give(Goal::Add(1)).await.done();
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w2".to_owned(), "t-w3".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_of_disown_is_noticed() {
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

/// Backup software keeps it outside the searched folders, with its stamp.
#[tokio::test(start_paused = true)]
async fn a_replica_of_a_kept_vm_stays_unchanged() {
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
async fn an_incomplete_vm_is_not_kept() {
    let world = World::killed_while_adding("add.end", Fault::KilledBefore).await;
    world.has_removed_by("t-w2", Removal::Keep).await;
    world.give_over(Goal::GoOn).await.done();
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w1".to_owned(), "t-w3".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_vm_no_longer_kept_is_destroyed() {
    let at = first("connect").await;
    let world = leaving().await;
    world.dies((at, Fault::KilledAfter), world.give(remove("t-w1"))).await;
    world.has_removed_by("t-w1", Removal::Destroy).await;
    world.give_over(Goal::GoOn).await.done();
    assert!(changes(&world).ends_with(&["detach", "destroy"]), "{:?}", changes(&world));
    assert_eq!((world.own(), world.given_up().len()), (vec!["t-w2".to_owned()], 0));
}

/// The record was restored: the worker is gone at once, and its VM is not newer.
#[tokio::test(start_paused = true)]
async fn a_member_with_a_disowned_vm_is_replaced() {
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

/// An account that may change its settings can stamp a running VM so, and add a copy that is off; or give that another stamp.
#[tokio::test(start_paused = true)]
async fn a_running_disowned_vm_is_not_gone() {
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

/// No second VM with its BIOS UUID is created.
#[test]
fn a_disowned_vm_is_not_created_again() {
    let mut pool = pool(1);
    pool.last_index = 1;
    let id = Uuid::from_u128(7);
    let machine = WorkerRecord { allocated_uuid: Some(id), ..WorkerRecord::new(&pool, id, None, 0) };
    let decided = |seen: &Inventory| {
        let [action] = <[Action; 1]>::try_from(next(&pool, std::slice::from_ref(&machine), seen).actions).unwrap();
        action
    };
    assert!(matches!(decided(&Inventory::default()), Action::CloneVm(_)));
    let kept = [(machine.name.clone(), "t-w1-kept-00000000".to_owned())].into();
    // As long as it may run, no other worker gets its address.
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

/// The record was restored to before its VM was recorded.
#[tokio::test(start_paused = true)]
async fn a_uuid_of_another_deployment_is_not_reused() {
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
        assert_eq!(world.give(wish).await.codes(), ["workers.vm-odd"]);
        let with = world.lock().machines.iter().filter(|machine| machine.vm.uuid() == uuid).count();
        assert_eq!((with, world.own().len()), (1, 0));
        assert!(world.kept().await.unwrap().machine("t-w1").is_some(), "its address is nobody else's");
    }
}

/// The inventory says whether it may run, also to the command that has disowned it.
#[tokio::test(start_paused = true)]
async fn a_disowned_vm_powered_on_is_not_gone() {
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
