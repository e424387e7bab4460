//! What people do, and what they are told.

use contract::deployer::Digests;
use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, Given, Machine, World, destroy_shown, wanted};
use crate::control_plane::{DesiredState, Goal, Lifecycle, RunOutcome, Wait};
use crate::hypervisor::{Disk, DiskRef, Hypervisor, Placement, PowerState, Vm};

#[tokio::test(start_paused = true)]
async fn a_cluster_is_made_and_given_again_nothing_happens() {
    let world = World::new();
    let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert!(status.nodes.iter().all(|node| node.formed && node.ready && node.power == Some(PowerState::On)));
    let before = world.lock().machines.clone();
    world.set_fault(None);
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert_eq!(world.lock().machines, before);
    let changed: Vec<_> = world.lock().calls.iter().map(|call| call.0).filter(|name| *name == "add").collect();
    assert_eq!(changed, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_made_with_the_uuid_that_was_drawn_for_its_node_and_put_where_that_one_is_to_be() {
    let world = World::new();
    let mut wanted = wanted(3);
    let drawn = |number: usize| Uuid::from_u128(0xe0 + number as u128);
    let zone = |number: usize| Placement { datastore: Some(format!("ds{number}")), ..Placement::default() };
    for (number, node) in wanted.nodes.iter_mut().enumerate().take(2) {
        (node.drawn, node.placement) = (Some(drawn(number)), Some(zone(number)));
    }
    let (arrived, status) = world.give(Goal::Deploy(&wanted)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    let uuids: Vec<_> = status.nodes.iter().map(|node| node.uuid.unwrap()).collect();
    assert_eq!(uuids[..2], [drawn(0), drawn(1)]);
    let placed: Vec<_> = world.lock().placed.values().cloned().collect();
    assert_eq!(placed, [zone(0), zone(1), Placement::default()]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_is_powered_on_and_one_that_is_lost_is_not_made_anew() {
    let world = World::with(3).await;
    world.lock().machines.iter_mut().find(|machine| machine.vm.name == "cp2").unwrap().vm.power = PowerState::Off;
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-gone"));
    assert_eq!(world.own(), ["cp1", "cp3"]);
}

/// As while its datastore is emptied.
#[tokio::test(start_paused = true)]
async fn a_place_that_takes_no_vms_now_stops_only_what_makes_one() {
    let world = World::new();
    world.lock().no_place = true;
    let refused = world.give(Goal::Deploy(&wanted(3))).await.failed();
    assert_eq!(refused, "the datastore ds takes no VMs now");
    assert_eq!(world.own(), [""; 0]);
    // All VMs are there, and the cluster has not formed yet.
    world.lock().no_place = false;
    world.lock().ill = true;
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    world.lock().no_place = true;
    world.lock().ill = false;
    let off = |name: &str| {
        world.lock().machines.iter_mut().filter(|it| it.vm.name == name).for_each(|it| it.vm.power = PowerState::Off);
    };
    for _ in 0..2 {
        off("cp2");
        let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
        assert!(status.nodes.iter().all(|node| node.power == Some(PowerState::On)), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_hypervisor_refuses_stops_it_and_nothing_was_powered_on() {
    let world = World::new();
    world.lock().refuses = true;
    let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(waits[0].reason.code, "hypervisor.refused");
    assert!(!status.done && world.own().is_empty());
    world.lock().refuses = false;
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_form_is_waited_for_and_can_be_destroyed_by_cutting_its_power() {
    let world = World::new();
    world.lock().ill = true;
    let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.iter().all(|wait| wait.reason.code == "deploy.forming") && waits.len() == 3, "{waits:?}");
    assert!(!status.formed);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 3));
    // Asked for once more, the disks go as well that were shown.
    world.lock().removes_used = true;
    let left = world.unheld().await;
    assert_eq!(left, status.left);
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, &status.left, world.lock().disks.len()), (RunOutcome::Gone, &left, 3));
    let (arrived, status) = world.give(destroy_shown(&left)).await.arrived();
    assert_eq!((arrived, status.left.len(), world.lock().disks.len()), (RunOutcome::Gone, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn after_it_was_destroyed_a_cluster_is_made_anew_and_the_disks_that_were_left_stay() {
    let world = World::with(1).await;
    let (_, status) = world.give(DESTROY).await.arrived();
    let left = status.left[0].uuid;
    let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)) && status.left.len() == 1, "{arrived:?}: {status:?}");
    assert_eq!(world.free_disks().into_iter().collect::<Vec<_>>(), [left]);
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_is_not_made_otherwise_half_way() {
    let world = World::new();
    world.lock().ill = true;
    world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let mut other = wanted(3);
    other.cluster = "other".to_owned();
    assert!(world.give(Goal::Deploy(&other)).await.failed().contains("the cluster control was begun here"));
    let refused = world.give(Goal::Deploy(&wanted(1))).await.failed();
    assert!(refused.contains("with the control-plane nodes cp1=10.0.0.11,cp2=10.0.0.12"), "{refused}");
    let mut other = wanted(3);
    other.image.digest = "two".to_owned();
    assert!(world.give(Goal::Deploy(&other)).await.failed().contains("was begun with kaas-control-plane"));
    let mut other = wanted(3);
    other.nodes[1].properties.insert("gateway".to_owned(), "10.0.0.1".to_owned());
    assert!(world.give(Goal::Deploy(&other)).await.failed().contains("the VM of cp2 was made with other"));
    // The secret may be gone.
    let mut other = wanted(3);
    other.nodes[1].properties.remove("deployment-secret");
    world.lock().ill = false;
    assert!(matches!(world.give(Goal::Deploy(&other)).await.arrived().0, RunOutcome::Up(_)));
    let wrong = Goal::Destroy { cluster: "other", disks: true, left: &[], doubtful: &[], held: &[], also: &[] };
    assert!(world.give(wrong).await.failed().contains("the cluster here is control, not other"));
    assert_eq!(world.status().await.unwrap().lifecycle, Lifecycle::Active);
}

#[tokio::test(start_paused = true)]
async fn vms_of_which_nothing_is_noted_are_no_clusters_to_go_on_with_nor_to_remove() {
    let world = World::with(3).await;
    world.forget();
    let before = world.lock().machines.clone();
    assert!(world.give(Goal::Deploy(&wanted(3))).await.failed().contains("they were made otherwise"));
    assert_eq!(world.status().await, None);
    let refused = world.give(DESTROY_ALL).await.failed();
    for machine in
        before.iter().filter(|machine| machine.vm.name.starts_with("cp") && machine.vm.power == PowerState::On)
    {
        assert!(refused.contains(&machine.vm.to_string()), "{refused}");
    }
    assert_eq!(world.lock().machines, before);
}

/// Panics unless a command was stopped by these VMs, named, which are as they were.
pub fn stopped_by(world: &World, arrived: &RunOutcome, planted: &[&Machine]) {
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    for machine in planted {
        let named = |wait: &&Wait| wait.reason.to_string().contains(&machine.vm.to_string());
        let wait = waits.iter().find(named).unwrap_or_else(|| panic!("{} is not named: {waits:?}", machine.vm));
        assert!(["deploy.vm-odd", "deploy.vm-unnoted"].contains(&&*wait.reason.code), "{wait}");
        assert!(world.lock().machines.contains(machine), "{} was touched", machine.vm);
        assert!(machine.vm.disks.iter().all(|disk| world.lock().disks.contains_key(&disk.reference.uuid)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_somebody_has_stamped_is_no_half_of_a_node_and_stays_with_its_disk() {
    let world = World::new();
    // It is stamped while the cluster is made: at its beginning a VM of the deployment is refused as a whole.
    world.lock().refuses = true;
    world.give(Goal::Deploy(&wanted(3))).await.arrived();
    world.lock().refuses = false;
    let planted = world.plant("payroll", "cp2", 0xbad1);
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    stopped_by(&world, &arrived, &[&planted]);
    for wish in [DESTROY, DESTROY_ALL] {
        let (arrived, status) = world.give(wish).await.arrived();
        stopped_by(&world, &arrived, &[&planted]);
        assert_eq!((world.own(), status.lifecycle), (vec!["payroll".to_owned()], Lifecycle::Deleting));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_cloned_of_a_control_node_stays_when_its_cluster_goes() {
    let world = World::with(3).await;
    let clone = world.plant("cp1 before the migration", "cp1", 0xbad2);
    let (arrived, _) = world.give(DESTROY).await.arrived();
    stopped_by(&world, &arrived, &[&clone]);
    assert_eq!(world.own(), ["cp1 before the migration"]);
    // Once a person has taken it away it goes on.
    world.lock().machines.retain(|machine| *machine != clone);
    let (arrived, _) = world.give(DESTROY).await.arrived();
    assert_eq!(arrived, RunOutcome::Gone);
}

/// A VM as it is now.
pub fn shown(world: &World, name: &str) -> Vm {
    world.lock().machines.iter().find(|machine| machine.vm.name == name).unwrap().vm.clone()
}

/// The cluster goes, and these VMs with it.
pub fn also(also: &[Vm], disks: bool) -> Goal<'_> {
    Goal::Destroy { cluster: "control", disks, left: &[], doubtful: &[], held: &[], also }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_took_another_ones_place_by_hand_goes_once_it_is_named() {
    let world = World::with(3).await;
    world.lock().removes_used = true;
    let lost = shown(&world, "cp2").disks[0].reference.uuid;
    let by_hand = world.plant("cp2 by hand", "cp2", 0xbad3);
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let (arrived, _) = world.give(DESTROY_ALL).await.arrived();
    stopped_by(&world, &arrived, &[&by_hand]);
    // Named as it was before somebody gave it another disk: nothing is changed.
    let before = by_hand.vm.clone();
    let other = world.plant("other", "cp3", 0xbad4).vm;
    let change = |world: &World, disks: Vec<Disk>| {
        world.lock().machines.iter_mut().find(|machine| machine.vm.name == "cp2 by hand").unwrap().vm.disks = disks;
    };
    change(&world, [before.disks.clone(), other.disks.clone()].concat());
    let refused = world.give(also(std::slice::from_ref(&before), true)).await.failed();
    assert!(refused.contains("is no longer as it was shown"), "{refused}");
    change(&world, before.disks.clone());
    world.lock().machines.retain(|machine| machine.vm.name != "other");
    let (arrived, status) = world.give(also(std::slice::from_ref(&before), true)).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 0));
    assert_eq!(world.own(), [""; 0]);
    let left = [lost, other.disks[0].reference.uuid].into();
    assert_eq!(world.free_disks(), left, "its own disk went with it, and no other one");
}

#[tokio::test(start_paused = true)]
async fn vms_that_were_adopted_go_once_each_of_them_is_named_and_others_never() {
    let world = World::with(3).await;
    world.forget();
    let adopted = ["cp1", "cp2", "cp3"].map(|name| {
        let mut state = world.lock();
        let machine = state.machines.iter_mut().find(|it| it.vm.name == name && it.vm.power == PowerState::On);
        machine.unwrap().vm.clone()
    });
    let refused = world.give(also(&adopted[..2], false)).await.failed();
    assert!(refused.contains(&adopted[2].to_string()) && !refused.contains(&adopted[0].to_string()), "{refused}");
    let stranger = shown(&world, "by-hand");
    let refused = world.give(also(&[stranger], false)).await.failed();
    assert!(refused.contains("0 VMs of this deployment have the BIOS UUID"), "{refused}");
    assert_eq!(world.own().len(), 3);
    let (arrived, status) = world.give(also(&adopted, false)).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 3));
    assert_eq!((world.own().len(), world.lock().machines.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_somebody_has_hung_on_a_node_is_never_removed_with_the_clusters_own() {
    let world = World::with(1).await;
    let foreign = world.plant("payroll", "cp1", 0xbad5).vm.disks;
    {
        let mut state = world.lock();
        state.machines.retain(|machine| machine.vm.name != "payroll");
        state
            .machines
            .iter_mut()
            .find(|it| it.vm.name == "cp1" && it.vm.power == PowerState::On)
            .unwrap()
            .vm
            .disks
            .extend(foreign.clone());
        state.disks.insert(foreign[0].reference.uuid, true);
        state.removes_used = true;
    }
    // Given once more, it removes what it had left, and not that one either.
    for _ in 0..2 {
        let (arrived, status) = world.give(destroy_shown(&[foreign[0].reference.clone()])).await.arrived();
        assert_eq!(world.unheld().await, [], "it is not shown");
        assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, &[foreign[0].reference.clone()][..]));
        assert!(world.lock().disks.contains_key(&foreign[0].reference.uuid));
        assert_eq!(world.lock().disks.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_cluster_is_made_with_no_other_secret_than_its_first_vms() {
    let world = World::new();
    world.lock().ill = true;
    world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let before = world.lock().machines.clone();
    let mut other = wanted(3);
    for node in &mut other.nodes {
        node.properties.insert("deployment-secret".to_owned(), "another".to_owned());
    }
    let refused = world.give(Goal::Deploy(&other)).await.failed();
    assert!(refused.contains("the VM of cp1 was given another deployment secret"), "{refused}");
    assert_eq!(world.lock().machines, before);
    // Of another deployer's nodes nobody can say what they were made of.
    let other = DesiredState { digests: Digests::of(b"another deployer's key"), ..wanted(3) };
    let refused = world.give(Goal::Deploy(&other)).await.failed();
    assert!(refused.contains("for another deployer's key"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_place_is_removed_while_it_is_held_and_only_once_nothing_is_left() {
    let world = World::with(1).await;
    assert!(!world.remove_empty().await.unwrap());
    world.give(DESTROY).await.arrived();
    assert_eq!(world.lock().emptied, 0, "a disk is left, and its journal names it");
    world.lock().removes_used = true;
    world.give(destroy_shown(&world.unheld().await)).await.arrived();
    assert_eq!(world.lock().emptied, 1);
    assert!(World::new().remove_empty().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_copied_or_lost_its_stamp_is_left_alone() {
    let world = World::with(3).await;
    let strip = |world: &World| {
        let mut state = world.lock();
        let machine = state.machines.iter_mut().find(|machine| machine.vm.name == "cp2").unwrap();
        machine.vm.stamp = None;
    };
    strip(&world);
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(waits[0].reason.code, "deploy.vm-odd");
    assert!(world.lock().machines.iter().any(|machine| machine.vm.name == "cp2" && machine.vm.power == PowerState::On));
    assert_ne!(world.status().await.unwrap().lifecycle, Lifecycle::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_handed_over_while_a_node_of_a_cluster_that_has_formed_is_not_there() {
    let unknown = |world: &World| {
        let mut state = world.lock();
        state.machines.iter_mut().find(|machine| machine.vm.name == "cp2").unwrap().vm.power = PowerState::Unknown;
    };
    let lost = |world: &World| world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    for (breaks, is_lost) in [(unknown as fn(&World), false), (lost as fn(&World), true)] {
        let world = World::with(3).await;
        {
            let mut state = world.lock();
            (state.speaks_alone, state.renewed) = (true, None);
        }
        breaks(&world);
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let is_so =
            if is_lost { matches!(arrived, RunOutcome::Stopped(_)) } else { matches!(arrived, RunOutcome::Paused(_)) };
        assert!(is_so, "{arrived:?}");
        assert_eq!(world.lock().renewed.as_deref(), Some("from 10.0.0.11"));
    }
    // Before it has formed there is no cluster to look into.
    let world = World::new();
    world.lock().ill = true;
    assert!(matches!(world.give(Goal::Deploy(&wanted(3))).await.arrived().0, RunOutcome::Paused(_)));
    assert_eq!(world.lock().renewed, None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_in_the_folder_is_not_taken_for_the_node_that_runs_elsewhere() {
    let wanted = wanted(3);
    for wish in [Goal::Deploy(&wanted), DESTROY, DESTROY_ALL] {
        let world = World::with(3).await;
        world.lock().removes_used = true;
        let real = shown(&world, "cp2");
        let copy = world.copy(&real);
        world.move_away(&real);
        let (arrived, status) = world.give(wish).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        let odd: Vec<&Wait> = waits.iter().filter(|wait| wait.reason.code == "deploy.vm-odd").collect();
        let [odd] = odd.as_slice() else { panic!("{waits:?}") };
        for vm in [&real, &copy] {
            assert!(odd.reason.words.contains(&vm.to_string()), "{odd}");
            let is_as_it_was = world.lock().machines.iter().any(|machine| machine.vm == *vm);
            assert!(is_as_it_was, "{vm} was touched");
        }
        assert!(world.lock().disks.contains_key(&real.disks[0].reference.uuid));
        assert_ne!(status.lifecycle, Lifecycle::Deleted);
        // Once a person has taken the copy away it goes on, wherever the other one is.
        world.lock().machines.retain(|machine| machine.vm.reference != copy.reference);
        let (arrived, _) = world.give(wish).await.arrived();
        match wish {
            Goal::Deploy(_) => assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}"),
            Goal::Destroy { .. } => assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_be_read_keeps_its_own_vm_as_it_is_and_no_other_one() {
    let world = World::with(3).await;
    {
        let mut state = world.lock();
        (state.speaks_alone, state.renewed) = (true, None);
        for machine in state.machines.iter_mut().filter(|it| ["cp2", "cp3"].contains(&it.vm.name.as_str())) {
            machine.vm.power = PowerState::Off;
        }
    }
    let cp2 = shown(&world, "cp2");
    world.lock().unreadable = Some(cp2.uuid());
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
    let odd = waits.iter().find(|wait| wait.reason.code == "deploy.vm-odd").unwrap();
    assert!(odd.reason.words.contains("a disk of a VM has no file"), "{odd}");
    assert_eq!((shown(&world, "cp2"), shown(&world, "cp3").power), (cp2, PowerState::On));
    assert!(world.lock().renewed.is_some(), "the others are asked for a kubeconfig");
    let (arrived, _) = world.give(DESTROY).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    assert_eq!(world.own(), ["cp2"]);
    world.lock().unreadable = None;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

/// After an outage all of them are off. Nothing is noted of how an adopted cluster was made: its VMs go by an operator's word.
#[tokio::test(start_paused = true)]
async fn replicas_that_are_off_elsewhere_with_disks_of_their_own_hinder_neither_deploy_nor_destroy() {
    for (is_adopted, disks) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::with(3).await;
        let own: Vec<Vm> = {
            let mut state = world.lock();
            // Replicas stay off.
            (state.removes_used, state.speaks_alone) = (true, true);
            let of_here = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT);
            let own = state.machines.iter_mut().filter(|machine| of_here(&machine.vm));
            own.map(|machine| {
                machine.vm.power = PowerState::Off;
                machine.vm.clone()
            })
            .collect()
        };
        let replicas: Vec<Machine> = own.iter().map(|vm| world.replicate(vm)).collect();
        let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
        assert!(status.nodes.iter().all(|node| node.power == Some(PowerState::On)), "{status:?}");
        let named = Hypervisor::vms(&world).await.unwrap();
        if is_adopted {
            world.forget();
        }
        let wish = match disks {
            _ if is_adopted => also(&named, disks),
            false => DESTROY,
            true => DESTROY_ALL,
        };
        assert_eq!(world.give(wish).await.arrived().0, RunOutcome::Gone);
        let left = world.lock().machines.clone();
        assert!(replicas.iter().all(|replica| left.contains(replica)), "a replica was touched: {left:?}");
        assert!(own.iter().all(|vm| !left.iter().any(|machine| machine.vm.reference == vm.reference)), "{left:?}");
    }
}

/// What a backup by snapshots keeps of a VM has no data disk: those of nodes are left out of snapshots. Somebody may have taken its stamp away.
#[tokio::test(start_paused = true)]
async fn a_replica_without_data_disks_stays_as_it_is_when_the_cluster_goes() {
    for (snapshots, is_stamped) in [(Vec::new(), true), (vec!["restore point".to_owned()], true), (Vec::new(), false)] {
        for wish in [DESTROY, DESTROY_ALL] {
            let world = World::with(3).await;
            world.lock().removes_used = true;
            let of = world.replicate(&shown(&world, "cp2")).vm.reference;
            let replica = {
                let mut state = world.lock();
                let replica = state.machines.iter_mut().find(|machine| machine.vm.reference == of).unwrap();
                replica.vm.disks.clear();
                replica.vm.snapshots.clone_from(&snapshots);
                replica.vm.stamp = replica.vm.stamp.take().filter(|_| is_stamped);
                replica.clone()
            };
            let (arrived, _) = world.give(wish).await.arrived();
            assert_eq!(arrived, RunOutcome::Gone, "{snapshots:?} {is_stamped}");
            assert_eq!(world.own(), if is_stamped { vec!["cp2-copy"] } else { Vec::new() });
            assert!(world.lock().machines.contains(&replica), "it was touched");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_moved_and_holds_a_disk_of_somebodys_goes_with_the_cluster_and_the_disk_stays() {
    for wish in [DESTROY, DESTROY_ALL] {
        let world = World::with(3).await;
        world.lock().removes_used = true;
        let payroll = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] payroll.vmdk".to_owned() };
        world.hang("cp2", &payroll);
        world.move_away(&shown(&world, "cp2"));
        let (arrived, status) = world.give(wish).await.arrived();
        assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
        assert!(status.left.contains(&payroll) && world.lock().disks.contains_key(&payroll.uuid), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_shows_another_authority_leads_nobody_into_another_cluster() {
    let stopped = async |world: &World| {
        world.set_fault(None);
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert_eq!(waits[0].reason.code, "deploy.authority");
        let asked = world.lock().calls.iter().filter(|(name, _)| *name == "kubeconfig" || *name == "ready").count();
        assert_eq!(asked, 0, "a node was asked");
    };
    // Before it has formed: whichever node it is.
    for astray in ["cp1", "cp3"] {
        let world = World::new();
        world.lock().astray = Some(astray);
        stopped(&world).await;
        assert!(!world.status().await.unwrap().formed);
        world.lock().astray = None;
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
        // And afterwards.
        world.lock().astray = Some(astray);
        stopped(&world).await;
    }
    // Also where all of them show another one.
    let world = World::with(1).await;
    world.lock().astray = Some("cp1");
    let (arrived, _) = world.give(Goal::Deploy(&wanted(1))).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits[0].to_string().contains("the cluster has formed with sha256:"), "{waits:?}");
}

/// A cluster of one node, and the disk that this holds.
async fn with_disk() -> (World, DiskRef) {
    let world = World::with(1).await;
    // Another one's VM is called as this node is, too.
    let held = world.lock().machines.iter().find_map(|machine| Some(machine.vm.disks.first()?.reference.clone()));
    (world, held.unwrap())
}

/// The same, whose file somebody has moved.
async fn with_disk_moved() -> (World, DiskRef) {
    let (world, disk) = with_disk().await;
    world.lock().disks.remove(&disk.uuid);
    (world, disk)
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_not_where_it_was_noted_is_named_and_not_taken_for_removed() {
    let (world, disk) = with_disk_moved().await;
    world.set_fault(None);
    let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.discarded), (RunOutcome::Gone, vec![disk], vec![]));
    assert_eq!(world.lock().emptied, 0, "its journal names it");
    // Also where that it is left could not be noted, or whoever looked for it was killed before he had noted it.
    let looked = world.lock().calls.iter().position(|call| call.0 == "has_disk").unwrap();
    let noted = looked + 1 + world.lock().calls[looked..].iter().position(|call| call.0 == "store.write").unwrap();
    for fault in [Fault::Fails, Fault::Lost, Fault::KilledBefore, Fault::KilledHalf] {
        let (world, disk) = with_disk_moved().await;
        world.set_fault(Some((noted, fault)));
        let given = world.give_over(DESTROY_ALL).await;
        assert_eq!(fault.kills(), matches!(given, Given::Killed), "{fault:?}: {given:?}");
        world.set_fault(None);
        let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, status.left), (RunOutcome::Gone, vec![disk]), "{fault:?}");
        assert_eq!(world.lock().emptied, 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_removal_was_refused_and_that_was_moved_then_is_not_taken_for_removed() {
    let (world, disk) = with_disk().await;
    world.lock().removes_used = true;
    world.lock().disks_stay = true;
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    assert_eq!(status.discarded.as_slice(), std::slice::from_ref(&disk));
    world.lock().disks_stay = false;
    world.lock().disks.remove(&disk.uuid);
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left), (RunOutcome::Gone, vec![disk]));
    assert!(status.doubtful.is_empty(), "its removal was never asked for");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_moved_while_its_removal_is_noted_is_not_said_to_be_asked_for() {
    let (world, disk) = with_disk().await;
    world.lock().removes_used = true;
    world.lock().once_removal_is_noted = Some(|state| state.disks.clear());
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.doubtful), (RunOutcome::Gone, vec![disk], vec![]));
    assert!(!world.lock().calls.iter().any(|call| call.0 == "delete_disk"), "it was asked for");
}

/// At which call a cluster of one node that goes with its disk has that removed.
async fn removal() -> usize {
    let (world, _) = with_disk().await;
    world.lock().removes_used = true;
    world.set_fault(None);
    let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.doubtful), (RunOutcome::Gone, vec![], vec![]));
    1 + world.lock().calls.iter().position(|call| call.0 == "delete_disk").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_removal_nobody_has_seen_the_end_of_is_named_with_that() {
    let removal = removal().await;
    for (fault, is_there) in [(Fault::KilledAfter, false), (Fault::KilledLate, false), (Fault::KilledBefore, true)] {
        let (world, disk) = with_disk().await;
        world.lock().removes_used = true;
        world.set_fault(Some((removal, fault)));
        let given = world.give_over(DESTROY_ALL).await;
        assert!(matches!(given, Given::Killed), "{fault:?}: {given:?}");
        world.set_fault(None);
        // What has gone by now is not shown as what goes as well.
        let is_shown = if fault == Fault::KilledAfter { vec![] } else { vec![disk.clone()] };
        assert_eq!(world.unheld().await, is_shown, "{fault:?}");
        let (arrived, status) = world.give_over(DESTROY).await.arrived();
        assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{fault:?}");
        // Where disks stay after all, one that was seen there is left, and no more is to be said of it.
        assert_eq!(status.doubtful, if is_there { vec![] } else { vec![disk.uuid] }, "{fault:?}");
    }
    // Nor has the command whose answer was lost: somebody may have moved the disk before it looked again.
    for fault in [Fault::Lost, Fault::Late] {
        let (world, disk) = with_disk().await;
        world.lock().removes_used = true;
        world.set_fault(Some((removal, fault)));
        let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{fault:?}");
        assert_eq!((status.doubtful, world.lock().emptied), (vec![disk.uuid], 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_removal_was_noted_and_not_asked_for_and_that_was_moved_then_is_not_taken_for_removed() {
    let removal = removal().await;
    for is_killed in [true, false] {
        for wish in [DESTROY_ALL, DESTROY] {
            let told = format!("killed {is_killed}");
            let (world, disk) = with_disk().await;
            world.lock().removes_used = true;
            if is_killed {
                world.set_fault(Some((removal, Fault::KilledBefore)));
                assert!(matches!(world.give_over(DESTROY_ALL).await, Given::Killed));
                world.set_fault(None);
            } else {
                world.lock().once_removal_is_noted = Some(|state| state.store_hangs = true);
                let (arrived, _) = world.give_over(DESTROY_ALL).await.arrived();
                assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
                let mut state = world.lock();
                (state.once_removal_is_noted, state.store_hangs) = (None, false);
            }
            assert!(world.lock().disks.remove(&disk.uuid).is_some(), "{told}: it was asked for");
            let (arrived, status) = world.give_over(wish).await.arrived();
            assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{told}");
            assert_eq!((status.doubtful, world.lock().emptied), (vec![disk.uuid], 0), "{told}");
            // Whoever brings it back has it as it was: left, and to be removed by whoever is shown it.
            world.lock().disks.insert(disk.uuid, true);
            let (arrived, status) = world.give_over(DESTROY).await.arrived();
            assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{told}");
            assert!(status.doubtful.is_empty(), "{told}");
            let (arrived, status) = world.give_over(destroy_shown(&[disk])).await.arrived();
            assert_eq!((arrived, status.left, world.lock().disks.len()), (RunOutcome::Gone, vec![], 0), "{told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_asked_for_again_and_again_is_noted_once() {
    let (world, disk) = with_disk().await;
    world.lock().disks_locked = true;
    let notes = || {
        let state = world.lock();
        let texts = state.holds().values().flat_map(|files| files.iter());
        texts
            .filter(|(name, text)| name.starts_with("deploy-") && text.contains("\"requested_disk_deletions\":"))
            .count()
    };
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    assert!(world.lock().calls.iter().filter(|call| call.0 == "delete_disk").count() > 1);
    assert_eq!((status.discarded, notes()), (vec![disk], 1));
}
