//! Typical uses, with their messages.

use contract::deployer::Digests;
use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, Given, Machine, World, destroy_shown, wanted};
use crate::control_plane::{DesiredState, Goal, Lifecycle, RunOutcome, Wait};
use crate::hypervisor::{Disk, DiskRef, Hypervisor, Placement, PowerState, Vm};

#[tokio::test(start_paused = true)]
async fn a_second_deployment_changes_nothing() {
    let world = World::new();
    let status = world.deploy(3).await.up();
    assert!(status.nodes.iter().all(|node| node.formed && node.ready && node.power == Some(PowerState::On)));
    let before = world.lock().machines.clone();
    world.set_fault(None);
    world.deploy(3).await.up();
    assert_eq!(world.lock().machines, before);
    let changed: Vec<_> = world.lock().calls.iter().map(|call| call.0).filter(|name| *name == "add").collect();
    assert_eq!(changed, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_vm_gets_its_drawn_uuid_and_placement() {
    let world = World::new();
    let mut wanted = wanted(3);
    let drawn = |number: usize| Uuid::from_u128(0xe0 + number as u128);
    let zone = |number: usize| Placement { datastore: Some(format!("ds{number}")), ..Placement::default() };
    for (number, node) in wanted.nodes.iter_mut().enumerate().take(2) {
        (node.drawn, node.placement) = (Some(drawn(number)), Some(zone(number)));
    }
    let status = world.give(Goal::Deploy(&wanted)).await.up();
    let uuids: Vec<_> = status.nodes.iter().map(|node| node.uuid.unwrap()).collect();
    assert_eq!(uuids[..2], [drawn(0), drawn(1)]);
    let placed: Vec<_> = world.lock().placed.values().cloned().collect();
    assert_eq!(placed, [zone(0), zone(1), Placement::default()]);
}

#[tokio::test(start_paused = true)]
async fn only_a_stopped_node_is_started_again() {
    let world = World::with(3).await;
    world.lock().named("cp2").vm.power = PowerState::Off;
    world.deploy(3).await.up();
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let waits = world.deploy(3).await.stopped();
    assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-gone"));
    assert_eq!(world.own(), ["cp1", "cp3"]);
}

/// For example while its datastore is emptied.
#[tokio::test(start_paused = true)]
async fn an_unusable_placement_stops_only_creations() {
    let world = World::new();
    world.lock().no_place = true;
    let refused = world.deploy(3).await.failed();
    assert_eq!(refused, "the datastore ds takes no VMs now");
    assert_eq!(world.own(), [""; 0]);
    // All VMs exist, and the cluster has not formed yet.
    world.lock().no_place = false;
    world.lock().ill = true;
    world.deploy(3).await.paused();
    world.lock().no_place = true;
    world.lock().ill = false;
    for _ in 0..2 {
        world.lock().named("cp2").vm.power = PowerState::Off;
        let status = world.deploy(3).await.up();
        assert!(status.nodes.iter().all(|node| node.power == Some(PowerState::On)), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stops_it_before_any_power_on() {
    let world = World::new();
    world.lock().refuses = true;
    let (arrived, status) = world.deploy(3).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert_eq!(waits[0].reason.code, "hypervisor.refused");
    assert!(!status.done && world.own().is_empty());
    world.lock().refuses = false;
    world.deploy(3).await.up();
}

#[tokio::test(start_paused = true)]
async fn an_unformed_cluster_can_be_destroyed() {
    let world = World::unhealthy();
    let (arrived, status) = world.deploy(3).await.arrived();
    let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.iter().all(|wait| wait.reason.code == "deploy.forming") && waits.len() == 3, "{waits:?}");
    assert!(!status.formed);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 3));
    // The second removal also removes the disks that were shown.
    world.lock().removes_used = true;
    let left = world.unheld().await;
    assert_eq!(left, status.left);
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, &status.left, world.lock().disks.len()), (RunOutcome::Gone, &left, 3));
    let (arrived, status) = world.give(destroy_shown(&left)).await.arrived();
    assert_eq!((arrived, status.left.len(), world.lock().disks.len()), (RunOutcome::Gone, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_keeps_retained_disks() {
    let world = World::with(1).await;
    let (_, status) = world.give(DESTROY).await.arrived();
    let left = status.left[0].uuid;
    let (arrived, status) = world.deploy(3).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)) && status.left.len() == 1, "{arrived:?}: {status:?}");
    assert_eq!(world.free_disks().into_iter().collect::<Vec<_>>(), [left]);
}

#[tokio::test(start_paused = true)]
async fn a_begun_cluster_is_not_created_differently() {
    let world = World::unhealthy();
    world.deploy(3).await.arrived();
    let mut other = wanted(3);
    other.cluster = "other".to_owned();
    world.give(Goal::Deploy(&other)).await.fails("the cluster control was begun here");
    world.deploy(1).await.fails("with the control-plane nodes cp1=10.0.0.11,cp2=10.0.0.12");
    let mut other = wanted(3);
    other.image.digest = "0b".repeat(32);
    world.give(Goal::Deploy(&other)).await.fails("was begun with kaas-control-plane");
    let mut other = wanted(3);
    other.nodes[1].properties.insert("gateway".to_owned(), "10.0.0.1".to_owned());
    world.give(Goal::Deploy(&other)).await.fails("the VM of cp2 was made with other");
    // The secret may be gone.
    let mut other = wanted(3);
    other.nodes[1].properties.remove("deployment-secret");
    world.lock().ill = false;
    assert!(matches!(world.give(Goal::Deploy(&other)).await.arrived().0, RunOutcome::Up(_)));
    let wrong = Goal::Destroy { cluster: "other", disks: true, left: &[], doubtful: &[], held: &[], also: &[] };
    world.give(wrong).await.fails("the cluster here is control, not other");
    assert_eq!(world.status().await.unwrap().lifecycle, Lifecycle::Active);
}

#[tokio::test(start_paused = true)]
async fn vms_without_a_record_are_refused() {
    let world = World::with(3).await;
    world.forget();
    let before = world.lock().machines.clone();
    world.deploy(3).await.fails("they were made otherwise");
    assert_eq!(world.status().await, None);
    let refused = world.give(DESTROY_ALL).await.failed();
    for name in ["cp1", "cp2", "cp3"] {
        assert!(refused.contains(&world.lock().named(name).vm.to_string()), "{refused}");
    }
    assert_eq!(world.lock().machines, before);
}

/// Panics unless these VMs, which are named and unchanged, stopped a command.
pub fn stopped_by(world: &World, waits: &[Wait], planted: &[&Machine]) {
    for machine in planted {
        let named = |wait: &&Wait| wait.reason.to_string().contains(&machine.vm.to_string());
        let wait = waits.iter().find(named).unwrap_or_else(|| panic!("{} is not named: {waits:?}", machine.vm));
        assert!(["deploy.vm-odd", "deploy.vm-unnoted"].contains(&&*wait.reason.code), "{wait}");
        assert!(world.lock().machines.contains(machine), "{} was touched", machine.vm);
        assert!(machine.vm.disks.iter().all(|disk| world.lock().disks.contains_key(&disk.reference.uuid)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_stamped_by_hand_keeps_its_disk() {
    let world = World::new();
    // It is stamped while the cluster is created: at the beginning a VM of the deployment is refused as a whole.
    world.lock().refuses = true;
    world.deploy(3).await.arrived();
    world.lock().refuses = false;
    let planted = world.plant("payroll", "cp2", 0xbad1);
    stopped_by(&world, &world.deploy(3).await.stopped(), &[&planted]);
    for wish in [DESTROY, DESTROY_ALL] {
        let (RunOutcome::Stopped(waits), status) = world.give(wish).await.arrived() else { panic!("it goes on") };
        stopped_by(&world, &waits, &[&planted]);
        assert_eq!((world.own(), status.lifecycle), (vec!["payroll".to_owned()], Lifecycle::Deleting));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_a_node_stays() {
    let world = World::with(3).await;
    let clone = world.plant("cp1 before the migration", "cp1", 0xbad2);
    stopped_by(&world, &world.give(DESTROY).await.stopped(), &[&clone]);
    assert_eq!(world.own(), ["cp1 before the migration"]);
    // Once the operator has removed it, the command continues.
    world.lock().machines.retain(|machine| *machine != clone);
    world.give(DESTROY).await.gone();
}

/// A VM as it is now.
pub fn shown(world: &World, name: &str) -> Vm {
    world.lock().machines.iter().find(|machine| machine.vm.name == name).unwrap().vm.clone()
}

/// The cluster is removed, and these VMs with it.
pub fn also(also: &[Vm], disks: bool) -> Goal<'_> {
    Goal::Destroy { cluster: "control", disks, left: &[], doubtful: &[], held: &[], also }
}

#[tokio::test(start_paused = true)]
async fn a_replacement_by_hand_is_removed_once_named() {
    let world = World::removing(3).await;
    let lost = shown(&world, "cp2").disks[0].reference.uuid;
    let by_hand = world.plant("cp2 by hand", "cp2", 0xbad3);
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    stopped_by(&world, &world.give(DESTROY_ALL).await.stopped(), &[&by_hand]);
    // Named as it was before it got another disk: nothing is changed.
    let before = by_hand.vm.clone();
    let other = world.plant("other", "cp3", 0xbad4).vm;
    let change = |disks: Vec<Disk>| world.lock().named("cp2 by hand").vm.disks = disks;
    change([before.disks.clone(), other.disks.clone()].concat());
    world.give(also(std::slice::from_ref(&before), true)).await.fails("is no longer as it was shown");
    change(before.disks.clone());
    world.lock().machines.retain(|machine| machine.vm.name != "other");
    assert_eq!(world.give(also(std::slice::from_ref(&before), true)).await.gone().left.len(), 0);
    assert_eq!(world.own(), [""; 0]);
    let left = [lost, other.disks[0].reference.uuid].into();
    assert_eq!(world.free_disks(), left, "its own disk went with it, and no other one");
}

#[tokio::test(start_paused = true)]
async fn only_named_adopted_vms_are_removed() {
    let world = World::with(3).await;
    world.forget();
    let adopted = ["cp1", "cp2", "cp3"].map(|name| world.lock().named(name).vm.clone());
    let refused = world.give(also(&adopted[..2], false)).await.failed();
    assert!(refused.contains(&adopted[2].to_string()) && !refused.contains(&adopted[0].to_string()), "{refused}");
    let stranger = shown(&world, "by-hand");
    world.give(also(&[stranger], false)).await.fails("0 VMs of this deployment have the BIOS UUID");
    assert_eq!(world.own().len(), 3);
    assert_eq!(world.give(also(&adopted, false)).await.gone().left.len(), 3);
    assert_eq!((world.own().len(), world.lock().machines.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_disk_attached_by_hand_is_never_removed() {
    let world = World::with(1).await;
    let foreign = world.plant("payroll", "cp1", 0xbad5).vm.disks;
    {
        let mut state = world.lock();
        state.machines.retain(|machine| machine.vm.name != "payroll");
        state.named("cp1").vm.disks.extend(foreign.clone());
        state.disks.insert(foreign[0].reference.uuid, true);
        state.removes_used = true;
    }
    // The next command removes the retained disks, but not that one.
    for _ in 0..2 {
        let (arrived, status) = world.give(destroy_shown(&[foreign[0].reference.clone()])).await.arrived();
        assert_eq!(world.unheld().await, [], "it is not shown");
        assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, &[foreign[0].reference.clone()][..]));
        assert!(world.lock().disks.contains_key(&foreign[0].reference.uuid));
        assert_eq!(world.lock().disks.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn all_vms_get_the_secret_of_the_first() {
    let world = World::unhealthy();
    world.deploy(3).await.arrived();
    let before = world.lock().machines.clone();
    let mut other = wanted(3);
    for node in &mut other.nodes {
        node.properties.insert("deployment-secret".to_owned(), "another".to_owned());
    }
    world.give(Goal::Deploy(&other)).await.fails("the VM of cp1 was given another deployment secret");
    assert_eq!(world.lock().machines, before);
    // It is unknown what another deployer's nodes were created from.
    let other = DesiredState { digests: Digests::of(b"another deployer's key"), ..wanted(3) };
    world.give(Goal::Deploy(&other)).await.fails("for another deployer's key");
}

#[tokio::test(start_paused = true)]
async fn the_empty_place_is_removed_under_the_lease() {
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
async fn a_copied_or_unstamped_vm_is_not_changed() {
    let world = World::with(3).await;
    world.lock().named("cp2").vm.stamp = None;
    let waits = world.give(DESTROY).await.stopped();
    assert_eq!(waits[0].reason.code, "deploy.vm-odd");
    assert!(world.lock().machines.iter().any(|machine| machine.vm.name == "cp2" && machine.vm.power == PowerState::On));
    assert_ne!(world.status().await.unwrap().lifecycle, Lifecycle::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_missing_node_delays_no_kubeconfig() {
    let unknown = |world: &World| world.lock().named("cp2").vm.power = PowerState::Unknown;
    let lost = |world: &World| world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    for (breaks, is_lost) in [(unknown as fn(&World), false), (lost as fn(&World), true)] {
        let world = World::with(3).await;
        {
            let mut state = world.lock();
            (state.speaks_alone, state.renewed) = (true, None);
        }
        breaks(&world);
        let (arrived, _) = world.deploy(3).await.arrived();
        let is_so =
            if is_lost { matches!(arrived, RunOutcome::Stopped(_)) } else { matches!(arrived, RunOutcome::Paused(_)) };
        assert!(is_so, "{arrived:?}");
        assert_eq!(world.lock().renewed.as_deref(), Some("from 10.0.0.11"));
    }
    // Before it has formed there is no cluster to inspect.
    let world = World::unhealthy();
    assert!(matches!(world.deploy(3).await.arrived().0, RunOutcome::Paused(_)));
    assert_eq!(world.lock().renewed, None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_no_moved_node() {
    let wanted = wanted(3);
    for wish in [Goal::Deploy(&wanted), DESTROY, DESTROY_ALL] {
        let world = World::removing(3).await;
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
        // Once the operator has removed the copy, the command continues, wherever the other one is.
        world.lock().machines.retain(|machine| machine.vm.reference != copy.reference);
        let (arrived, _) = world.give(wish).await.arrived();
        match wish {
            Goal::Deploy(_) | Goal::Continue | Goal::Replace { .. } => {
                assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}")
            }
            Goal::Destroy { .. } => assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_copy_only_blocks_its_vm() {
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
    let waits = world.deploy(3).await.paused();
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

/// After an outage all of them are off. An adopted cluster has no record of its creation: its VMs are removed because an operator
/// named them.
#[tokio::test(start_paused = true)]
async fn replicas_block_neither_deploy_nor_destroy() {
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
        let (arrived, status) = world.deploy(3).await.arrived();
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

/// A replica of a snapshot backup has no data disk: those of nodes are left out of snapshots. Its stamp may have been removed.
#[tokio::test(start_paused = true)]
async fn a_replica_without_data_disks_stays() {
    for (snapshots, is_stamped) in [(Vec::new(), true), (vec!["restore point".to_owned()], true), (Vec::new(), false)] {
        for wish in [DESTROY, DESTROY_ALL] {
            let world = World::removing(3).await;
            let of = world.replicate(&shown(&world, "cp2")).vm.reference;
            let replica = {
                let mut state = world.lock();
                let replica = state.machines.iter_mut().find(|machine| machine.vm.reference == of).unwrap();
                replica.vm.disks.clear();
                replica.vm.snapshots.clone_from(&snapshots);
                replica.vm.stamp = replica.vm.stamp.take().filter(|_| is_stamped);
                replica.clone()
            };
            world.give(wish).await.gone();
            assert_eq!(world.own(), if is_stamped { vec!["cp2-copy"] } else { Vec::new() });
            assert!(world.lock().machines.contains(&replica), "it was touched");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_disk_of_a_moved_vm_stays() {
    for wish in [DESTROY, DESTROY_ALL] {
        let world = World::removing(3).await;
        let payroll = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] payroll.vmdk".to_owned() };
        world.hang("cp2", &payroll);
        world.move_away(&shown(&world, "cp2"));
        let (arrived, status) = world.give(wish).await.arrived();
        assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
        assert!(status.left.contains(&payroll) && world.lock().disks.contains_key(&payroll.uuid), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_another_ca_stops_it() {
    let stopped = async |world: &World| {
        world.set_fault(None);
        let waits = world.deploy(3).await.stopped();
        assert_eq!(waits[0].reason.code, "deploy.authority");
        let asked = world.lock().calls.iter().filter(|(name, _)| *name == "kubeconfig" || *name == "ready").count();
        assert_eq!(asked, 0, "a node was asked");
    };
    // Before it has formed: for each node.
    for astray in ["cp1", "cp3"] {
        let world = World::new();
        world.lock().astray = Some(astray);
        stopped(&world).await;
        assert!(!world.status().await.unwrap().formed);
        world.lock().astray = None;
        world.deploy(3).await.up();
        // And afterwards.
        world.lock().astray = Some(astray);
        stopped(&world).await;
    }
    // Also if all of them show another one.
    let world = World::with(1).await;
    world.lock().astray = Some("cp1");
    let waits = world.deploy(1).await.stopped();
    assert!(waits[0].to_string().contains("the cluster has formed with sha256:"), "{waits:?}");
}

/// A cluster of one node, and the disk that this holds.
async fn with_disk() -> (World, DiskRef) {
    let world = World::with(1).await;
    // A VM outside the cluster has the same name.
    let held = world.lock().machines.iter().find_map(|machine| Some(machine.vm.disks.first()?.reference.clone()));
    (world, held.unwrap())
}

/// The same, with its file moved.
async fn with_disk_moved() -> (World, DiskRef) {
    let (world, disk) = with_disk().await;
    world.lock().disks.remove(&disk.uuid);
    (world, disk)
}

#[tokio::test(start_paused = true)]
async fn a_moved_disk_is_retained() {
    let (world, disk) = with_disk_moved().await;
    world.set_fault(None);
    let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.discarded), (RunOutcome::Gone, vec![disk], vec![]));
    assert_eq!(world.lock().emptied, 0, "its journal names it");
    // Also if this could not be saved, or the command that looked for it was killed before it saved this.
    let looked = world.lock().calls.iter().position(|call| call.0 == "has_disk").unwrap();
    let noted = looked + 1 + world.lock().calls[looked..].iter().position(|call| call.0 == "store.write").unwrap();
    for fault in [Fault::Fails, Fault::Lost, Fault::KilledBefore, Fault::KilledHalf] {
        let (world, disk) = with_disk_moved().await;
        world.set_fault(Some((noted, fault)));
        let given = world.give_over(DESTROY_ALL).await;
        assert_eq!(fault.kills(), matches!(given, Given::Killed), "{fault:?}: {given:?}");
        world.set_fault(None);
        assert_eq!(world.give_over(DESTROY_ALL).await.gone().left, vec![disk], "{fault:?}");
        assert_eq!(world.lock().emptied, 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_moved_after_a_refusal_is_retained() {
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
async fn a_disk_moved_before_its_removal_is_retained() {
    let (world, disk) = with_disk().await;
    world.lock().removes_used = true;
    world.lock().once_removal_is_noted = Some(|state| state.disks.clear());
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.doubtful), (RunOutcome::Gone, vec![disk], vec![]));
    assert!(!world.lock().calls.iter().any(|call| call.0 == "delete_disk"), "it was asked for");
}

/// The call at which a cluster of one node removes its disk.
async fn removal() -> usize {
    let (world, _) = with_disk().await;
    world.lock().removes_used = true;
    world.set_fault(None);
    let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.left, status.doubtful), (RunOutcome::Gone, vec![], vec![]));
    1 + world.lock().calls.iter().position(|call| call.0 == "delete_disk").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_an_unknown_removal_is_doubtful() {
    let removal = removal().await;
    for (fault, is_there) in [(Fault::KilledAfter, false), (Fault::KilledLate, false), (Fault::KilledBefore, true)] {
        let (world, disk) = with_disk().await;
        world.lock().removes_used = true;
        world.set_fault(Some((removal, fault)));
        let given = world.give_over(DESTROY_ALL).await;
        assert!(matches!(given, Given::Killed), "{fault:?}: {given:?}");
        world.set_fault(None);
        // A disk that is already gone is not shown as one to remove.
        let is_shown = if fault == Fault::KilledAfter { vec![] } else { vec![disk.clone()] };
        assert_eq!(world.unheld().await, is_shown, "{fault:?}");
        let (arrived, status) = world.give_over(DESTROY).await.arrived();
        assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{fault:?}");
        // If disks are to stay now, a disk that was seen there is retained without a doubt.
        assert_eq!(status.doubtful, if is_there { vec![] } else { vec![disk.uuid] }, "{fault:?}");
    }
    // A command whose response was lost does not know it either: the disk may have been moved before it looked again.
    for fault in [Fault::Lost, Fault::Late] {
        let (world, disk) = with_disk().await;
        world.lock().removes_used = true;
        world.set_fault(Some((removal, fault)));
        let status = world.give_over(DESTROY_ALL).await.gone();
        assert_eq!(status.left.as_slice(), std::slice::from_ref(&disk), "{fault:?}");
        assert_eq!((status.doubtful, world.lock().emptied), (vec![disk.uuid], 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_moved_before_the_request_is_doubtful() {
    let removal = removal().await;
    for is_killed in [true, false] {
        for wish in [DESTROY_ALL, DESTROY] {
            let told = format!("killed {is_killed}");
            let (world, disk) = with_disk().await;
            world.lock().removes_used = true;
            if is_killed {
                world.dies((removal, Fault::KilledBefore), world.give_over(DESTROY_ALL)).await;
            } else {
                world.lock().once_removal_is_noted = Some(|state| state.store_hangs = true);
                world.give_over(DESTROY_ALL).await.paused();
                let mut state = world.lock();
                (state.once_removal_is_noted, state.store_hangs) = (None, false);
            }
            assert!(world.lock().disks.remove(&disk.uuid).is_some(), "{told}: it was asked for");
            let (arrived, status) = world.give_over(wish).await.arrived();
            assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{told}");
            assert_eq!((status.doubtful, world.lock().emptied), (vec![disk.uuid], 0), "{told}");
            // If it is brought back, it is as before: retained, and removed once it is shown.
            world.lock().disks.insert(disk.uuid, true);
            let (arrived, status) = world.give_over(DESTROY).await.arrived();
            assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)), "{told}");
            assert!(status.doubtful.is_empty(), "{told}");
            let status = world.give_over(destroy_shown(&[disk])).await.gone();
            assert_eq!((status.left, world.lock().disks.len()), (vec![], 0), "{told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_removal_is_recorded_once() {
    let (world, disk) = with_disk().await;
    world.lock().disks_locked = true;
    let notes = || {
        let state = world.lock();
        let texts = state.holds().values().flat_map(|files| files.iter());
        texts.filter(|(name, text)| name.starts_with("deploy-") && text.contains("\"requestedDiskDeletions\":")).count()
    };
    let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    assert!(world.lock().calls.iter().filter(|call| call.0 == "delete_disk").count() > 1);
    assert_eq!((status.discarded, notes()), (vec![disk], 1));
}
