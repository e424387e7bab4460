//! Disks of VMs that are being created: a disk that another client attaches stays, whatever happens to the VM's own.

use std::sync::Arc;

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, Machine, State, World, wanted};
use crate::control_plane::{Goal, RunOutcome, Unfinished};
use crate::hypervisor::{DiskRef, PowerState};

fn somebodys() -> DiskRef {
    DiskRef { uuid: Uuid::from_u128(0xf00), path: "[ds] somebody's.vmdk".to_owned() }
}

/// A world whose command for one node was killed at a call, chosen from the calls of a twin that ran to its end.
async fn killed_at(find: impl Fn(&[&str]) -> Option<usize>, fault: Fault, is_spoilt: bool) -> World {
    let (twin, world) = (World::new(), World::new());
    twin.lock().spoils = is_spoilt;
    world.lock().spoils = is_spoilt;
    twin.give(Goal::Deploy(&wanted(1))).await;
    let calls: Vec<&str> = twin.lock().calls.iter().map(|(name, _)| *name).collect();
    world.dies((1 + find(&calls).unwrap(), fault), world.deploy(1)).await;
    world.lock().spoils = false;
    world
}

/// The first call of this name.
fn first(calls: &[&str], name: &str) -> Option<usize> {
    calls.iter().position(|call| *call == name)
}

/// The only VM of the deployment.
fn own(state: &mut State) -> &mut Machine {
    let is_ours = |machine: &&mut Machine| machine.vm.stamp.as_ref().is_some_and(|it| it.deployment == DEPLOYMENT);
    state.machines.iter_mut().find(is_ours).unwrap()
}

fn power(world: &World, power: PowerState) {
    own(&mut world.lock()).vm.power = power;
}

#[tokio::test(start_paused = true)]
async fn a_disk_attached_to_an_incomplete_vm_stays() {
    for is_deployed in [true, false] {
        let world = killed_at(|calls| first(calls, "detach"), Fault::KilledAfter, true).await;
        // Its host is away: the incomplete VM stays for now, and its own disk is removed.
        power(&world, PowerState::Unknown);
        world.give_over(Goal::Deploy(&wanted(1))).await.paused();
        assert_eq!((world.own().len(), world.lock().disks.len()), (1, 0));
        world.hang("cp1", &somebodys());
        power(&world, PowerState::Off);
        let deployed = wanted(1);
        let wish = if is_deployed { Goal::Deploy(&deployed) } else { DESTROY };
        let (arrived, status) = world.give_over(wish).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_) | RunOutcome::Gone), "{arrived:?}");
        assert_eq!(status.left, [somebodys()], "deployed {is_deployed}");
        assert!(world.free_disks().contains(&somebodys().uuid), "deployed {is_deployed}");
        // The own disk of the next incomplete VM is removed like the first one, and with the cluster that of the VM.
        world.lock().removes_used = true;
        assert_eq!(world.give_over(DESTROY_ALL).await.gone().left, vec![somebodys()], "deployed {is_deployed}");
        assert_eq!(world.lock().disks.keys().copied().collect::<Vec<_>>(), [somebodys().uuid]);
    }
}

/// Killed before it records that it powers its VM on.
async fn killed_before_power_on() -> World {
    let noted = |calls: &[&str]| calls[..first(calls, "power_on")?].iter().rposition(|call| *call == "store.write");
    killed_at(noted, Fault::KilledBefore, false).await
}

/// It is unknown then which of them is its own, also once the others are detached.
#[tokio::test(start_paused = true)]
async fn a_disk_attached_before_first_start_stays() {
    for is_alone in [false, true] {
        let world = killed_before_power_on().await;
        world.hang("cp1", &somebodys());
        world.give_over(Goal::Deploy(&wanted(1))).await.up();
        if is_alone {
            let mut state = world.lock();
            let machine = own(&mut state);
            machine.vm.disks.retain(|disk| disk.reference == somebodys());
        }
        let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, world.lock().disks.len()), (RunOutcome::Gone, 2), "alone {is_alone}");
        assert!(status.left.contains(&somebodys()), "{status:?}");
    }
}

/// Also if the command that has seen that does nothing, because the VM has a snapshot, and the next one sees it off.
#[tokio::test(start_paused = true)]
async fn disks_of_a_vm_started_by_hand_stay() {
    for (seen, is_held_up) in [(PowerState::On, false), (PowerState::On, true), (PowerState::Suspended, true)] {
        let world = killed_before_power_on().await;
        power(&world, seen);
        let snapshots = |names: &[&str]| {
            let mut state = world.lock();
            let machine = own(&mut state);
            machine.vm.snapshots = names.iter().map(|name| (*name).to_owned()).collect();
        };
        world.lock().disks.values_mut().for_each(|used| *used = true);
        if is_held_up {
            snapshots(&["a backup"]);
            world.give_over(DESTROY).await.paused();
            snapshots(&[]);
            power(&world, PowerState::Off);
        }
        let status = world.give_over(DESTROY).await.gone();
        assert_eq!((status.left.len(), world.lock().disks.len()), (1, 1), "{seen:?}");
    }
}

/// The VM was about to be removed with the cluster, and has released its own disk.
#[tokio::test(start_paused = true)]
async fn a_disk_used_by_hand_during_removal_stays() {
    let world = killed_before_power_on().await;
    world.set_fault(None);
    world.lock().lost = Some(("destroy", usize::MAX));
    world.give_over(DESTROY).await.paused();
    world.lock().lost = None;
    world.hang("cp1", &somebodys());
    power(&world, PowerState::On);
    assert_eq!(world.give_over(DESTROY_ALL).await.gone().left, vec![somebodys()]);
    assert_eq!(world.lock().disks.keys().copied().collect::<Vec<_>>(), [somebodys().uuid]);
}

/// Its removal is tried again, and goes on to be where the cluster is removed.
#[tokio::test(start_paused = true)]
async fn an_unremovable_blank_disk_stays_once_used() {
    for (is_hung, is_taken_off, is_off, all) in [
        (false, false, false, false),
        (true, false, false, false),
        (true, false, false, true),
        (true, false, true, true),
        (true, true, false, false),
    ] {
        let world = killed_at(|calls| first(calls, "add.disk"), Fault::KilledAfter, false).await;
        let held = |world: &World| {
            let state = world.lock();
            state.machines.iter().find_map(|machine| Some(machine.vm.data_disks().next()?.reference.clone()))
        };
        let blank = held(&world).unwrap();
        world.lock().disks_locked = true;
        let (arrived, status) = world.give_over(Goal::Deploy(&wanted(1))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
        assert!(status.nodes[0].formed && status.nodes[0].ready, "{status:?}");
        assert_eq!(status.discarded, std::slice::from_ref(&blank));
        world.lock().disks_locked = false;
        if is_hung {
            world.hang("cp1", &blank);
        }
        if is_taken_off {
            // A command that deploys the cluster again sees it there.
            world.give_over(Goal::Deploy(&wanted(1))).await.up();
            let mut state = world.lock();
            let machine = own(&mut state);
            machine.vm.disks.retain(|disk| disk.reference != blank);
        }
        if is_off {
            power(&world, PowerState::Off);
        }
        world.lock().removes_used = all;
        let (arrived, status) = world.give_over(if all { DESTROY_ALL } else { DESTROY }).await.arrived();
        let stay = usize::from(is_hung) + usize::from(!all);
        let told = format!("hung {is_hung}, taken off {is_taken_off}, off {is_off}, all {all}");
        assert_eq!((arrived, status.left.len(), world.lock().disks.len()), (RunOutcome::Gone, stay, stay), "{told}");
        assert_eq!(status.left.contains(&blank), is_hung, "{told}");
    }
}

/// It may have served meanwhile, also if the process that sees it has drawn its UUID itself.
#[tokio::test(start_paused = true)]
async fn an_incomplete_vm_that_ran_leaves_its_disk() {
    for (is_restorable, seen) in [(false, PowerState::On), (true, PowerState::On), (true, PowerState::Suspended)] {
        let world = killed_at(|calls| first(calls, "add.disk"), Fault::KilledAfter, false).await;
        let process = Arc::new(Unfinished::default());
        let half = {
            let mut state = world.lock();
            (state.restorable, state.process) = (is_restorable, Some(Arc::clone(&process)));
            own(&mut state).vm.clone()
        };
        process.begins(half.uuid());
        power(&world, seen);
        world.lock().disks.values_mut().for_each(|used| *used = true);
        let (arrived, _) = world.give_over(Goal::Deploy(&wanted(1))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Paused(_) | RunOutcome::Stopped(_)), "{arrived:?}");
        power(&world, PowerState::Off);
        let status = world.give_over(Goal::Deploy(&wanted(1))).await.up();
        let used: Vec<_> = half.data_disks().map(|disk| disk.reference.clone()).collect();
        assert_eq!((status.left.as_slice(), used.len()), (used.as_slice(), 1), "restorable {is_restorable}, {seen:?}");
        assert!(world.free_disks().contains(&used[0].uuid));
    }
}

/// It is unknown then which disk is its own: a disk of a VM that is off when all data disks are removed stays.
#[tokio::test(start_paused = true)]
async fn the_disk_of_an_ambiguous_running_vm_stays() {
    for is_copied in [false, true] {
        let world = killed_before_power_on().await;
        world.lock().disks.values_mut().for_each(|used| *used = true);
        let stamp = {
            let mut state = world.lock();
            let machine = own(&mut state);
            let stamp = machine.vm.stamp.clone();
            if is_copied {
                let mut copy = machine.clone();
                copy.vm.reference.id.push_str("-copy");
                copy.vm.power = PowerState::On;
                state.machines.push(copy);
            } else {
                (machine.vm.stamp, machine.vm.power) = (None, PowerState::On);
            }
            stamp
        };
        world.give_over(Goal::Deploy(&wanted(1))).await.stopped();
        {
            let mut state = world.lock();
            state.machines.retain(|machine| !machine.vm.reference.id.ends_with("-copy"));
            let is_its = |machine: &&mut Machine| machine.vm.name == "cp1" && !machine.vm.disks.is_empty();
            let machine = state.machines.iter_mut().find(is_its).unwrap();
            (machine.vm.stamp, machine.vm.power) = (stamp, PowerState::Off);
        }
        let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
        let told = format!("copied {is_copied}");
        assert_eq!((arrived, status.left.len(), world.lock().disks.len()), (RunOutcome::Gone, 1, 1), "{told}");
    }
}

/// It was not shown, and the journal is a file that others may write.
#[tokio::test(start_paused = true)]
async fn a_blank_disk_outside_node_directories_is_retained() {
    for wish in [Goal::Deploy(&wanted(1)), DESTROY, DESTROY_ALL] {
        let shown = matches!(wish, Goal::Destroy { disks: true, .. });
        let world = killed_at(|calls| first(calls, "add.disk"), Fault::KilledAfter, false).await;
        world.lock().disks_locked = true;
        let (_, status) = world.give_over(Goal::Deploy(&wanted(1))).await.arrived();
        let [blank] = &status.discarded[..] else { panic!("{status:?}") };
        world.lock().disks_locked = false;
        world.lock().disks_elsewhere = true;
        world.lock().removes_used = shown;
        let (_, status) = world.give_over(wish).await.arrived();
        let is_there = world.free_disks().contains(&blank.uuid);
        assert_eq!((status.left.contains(blank), is_there), (!shown, !shown), "{status:?}");
        assert!(status.discarded.is_empty(), "{status:?}");
    }
}

/// It stays as long as the VM exists, and afterwards.
#[tokio::test(start_paused = true)]
async fn a_blank_disk_on_an_unrecorded_vm_stays() {
    let world = killed_at(|calls| first(calls, "add.disk"), Fault::KilledAfter, false).await;
    world.lock().disks_locked = true;
    let (arrived, status) = world.give_over(Goal::Deploy(&wanted(1))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    let [blank] = &status.discarded[..] else { panic!("{status:?}") };
    world.lock().disks_locked = false;
    world.plant("clone", "cp1", 0xc10);
    world.hang("clone", blank);
    let machine = |machine: &Machine| machine.vm.name == "clone";
    world.lock().machines.iter_mut().filter(|it| machine(it)).for_each(|it| it.vm.power = PowerState::On);
    world.give_over(Goal::Deploy(&wanted(1))).await.stopped();
    world.lock().machines.retain(|it| !machine(it));
    let status = world.give_over(Goal::Deploy(&wanted(1))).await.up();
    assert_eq!(status.left.as_slice(), std::slice::from_ref(blank));
    assert!(world.free_disks().contains(&blank.uuid));
}
