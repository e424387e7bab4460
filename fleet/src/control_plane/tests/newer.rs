//! VMs that are newer than the record of their cluster.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, World, vm, wanted};
use crate::control_plane::{DeploymentRecord, Goal, Inventory, Lifecycle};
use crate::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Stamp, Vm};

/// The record of three nodes, whose VMs are recorded as begun (1 to 3), and the first `whole` of them as complete.
fn kept(whole: u128) -> DeploymentRecord {
    let mut kept = Goal::Deploy(&wanted(3)).applied(DEPLOYMENT, None, &[]).unwrap();
    for (number, node) in (1..).zip(&mut kept.nodes) {
        let uuid = Some(Uuid::from_u128(number));
        (node.allocated_uuid, node.bios_uuid) = (uuid, uuid.filter(|_| number <= whole));
    }
    kept
}

/// A VM of a node that holds a data disk.
fn holding(node: &str, uuid: u128, power: PowerState) -> Vm {
    let stamp = Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap: None };
    let reference = DiskRef { uuid: Uuid::from_u128(uuid + 0xd0), path: "p".to_owned() };
    let disk = Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() };
    Vm { power, disks: vec![disk], ..vm(node, Uuid::from_u128(uuid), Some(stamp)) }
}

fn newer(kept: &DeploymentRecord, vms: &[Vm]) -> Vec<u128> {
    let seen = Inventory { vms: vms.to_vec(), ..Inventory::default() };
    seen.newer(kept).into_iter().map(|vm| vm.uuid().as_u128()).collect()
}

#[test]
fn an_unrecorded_vm_in_use_is_newer() {
    let formed = DeploymentRecord { formed: true, ..kept(3) };
    let (on, off) = (PowerState::On, PowerState::Off);
    let known = holding("cp1", 1, on);
    assert_eq!(newer(&formed, &[known.clone(), holding("cp2", 9, on), holding("cp3", 8, off)]), [9, 8]);
    assert_eq!(newer(&formed, &[holding("else", 9, on)]), [9], "of a node that nobody knows");
    let empty = Vm { disks: Vec::new(), ..holding("cp2", 9, off) };
    assert_eq!(newer(&formed, &[known.clone(), empty.clone()]), [0; 0], "an upgrade may have left it");
    let with = |power| Vm { power, ..empty.clone() };
    assert_eq!(newer(&formed, &[with(on)]), [9]);
    assert_eq!(newer(&formed, &[with(PowerState::Unknown)]), [0; 0], "its host does not answer");
    assert_eq!(newer(&formed, &[known.clone(), known]), [0; 0], "a copy is no newer one");
    let unstamped = Vm { stamp: None, ..holding("cp2", 2, on) };
    assert_eq!(newer(&formed, &[unstamped]), [0; 0], "that is another thing to see to");
    let swapped =
        Inventory { vms: vec![holding("cp2", 9, on)], upgraded: [Uuid::from_u128(9)].into(), ..Inventory::default() };
    assert!(swapped.newer(&formed).is_empty(), "an upgrade has noted it");
    let also = [holding("cp2", 9, on)];
    let wish = Goal::Destroy {
        cluster: &formed.cluster.clone(),
        disks: true,
        left: &[],
        doubtful: &[],
        held: &[],
        also: &also,
    };
    let granted = wish.applied(DEPLOYMENT, Some(formed), &also).unwrap();
    assert_eq!(granted.lifecycle, Lifecycle::Deleting, "an operator asked for its deletion");
    assert!(newer(&granted, &also).is_empty());
    assert_eq!(newer(&DESTROY_ALL.applied(DEPLOYMENT, Some(granted), &also).unwrap(), &also), [9]);
}

/// An incomplete VM is removed with its disk: an interrupted command leaves only one, and all other VMs are off.
#[test]
fn begun_vms_are_newer_once_they_are_complete() {
    let (on, off) = (PowerState::On, PowerState::Off);
    let all = |power| [holding("cp1", 1, power), holding("cp2", 2, power), holding("cp3", 3, power)];
    assert_eq!(newer(&kept(0), &all(on)), [1, 2, 3]);
    assert_eq!(newer(&kept(0), &all(off)), [1, 2, 3], "none is begun before the one before it is whole");
    assert_eq!(newer(&kept(2), &all(on)), [3], "none is powered on before all are whole");
    assert_eq!(newer(&kept(2), &[holding("cp1", 1, on), holding("cp3", 3, off)]), [3]);
    assert_eq!(newer(&kept(2), &all(off)), [0; 0], "an interrupted command leaves one");
    let detached = Vm { disks: Vec::new(), ..holding("cp1", 1, off) };
    assert_eq!(
        newer(&kept(0), &[detached, holding("cp2", 2, off)]),
        [0; 0],
        "it is being removed, and so is the next one"
    );
    assert_eq!(newer(&kept(3), &all(on)), [0; 0], "it was powered on, and that was not noted");
    let mut started = kept(2);
    started.nodes[0].ever_powered_on = true;
    let half = |power| [holding("cp1", 1, on), holding("cp2", 2, off), holding("cp3", 3, power)];
    assert_eq!(newer(&started, &half(off)), [0; 0], "the one before it has gone once another one was powered on");
    assert_eq!(newer(&started, &half(on)), [3]);
    // The hosts of VMs that were never on do not answer.
    let unknown = PowerState::Unknown;
    assert_eq!(newer(&kept(2), &all(unknown)), [0; 0]);
    assert_eq!(newer(&kept(2), &all(PowerState::Suspended)), [3]);
    let detached = Vm { disks: Vec::new(), ..holding("cp1", 1, unknown) };
    assert_eq!(newer(&kept(0), &[detached, holding("cp2", 2, off)]), [0; 0]);
}

/// An earlier inventory does not show what exists when an action runs.
#[tokio::test(start_paused = true)]
async fn an_older_record_stops_all_actions() {
    let world = World::with(3).await;
    world.plant("cp1-new", "cp1", 0x77);
    world.lock().restorable = true;
    let before = world.lock().machines.clone();
    for wish in [DESTROY, DESTROY_ALL] {
        let waits = world.give(wish).await.stopped();
        assert_eq!(waits.iter().map(|wait| wait.reason.code.as_str()).collect::<Vec<_>>(), ["deploy.vm-newer"]);
        assert_eq!(world.lock().machines, before);
    }
}

/// The record may have been restored to the moment when the VM was begun: whether it has served since is unknown.
#[tokio::test(start_paused = true)]
async fn an_older_record_keeps_disks_of_incomplete_vms() {
    let twin = World::new();
    twin.give(Goal::Deploy(&wanted(1))).await.arrived();
    let made = 1 + twin.lock().calls.iter().position(|call| call.0 == "add.end").unwrap();
    for is_restorable in [false, true] {
        let world = World::new();
        world.lock().restorable = is_restorable;
        // Before it is recorded that the VM is complete.
        world.dies((made + 1, Fault::KilledBefore), world.deploy(1)).await;
        let disks: BTreeSet<Uuid> = world.lock().disks.keys().copied().collect();
        let status = world.give_over(Goal::Deploy(&wanted(1))).await.up();
        let left: BTreeSet<Uuid> = status.left.iter().map(|disk| disk.uuid).collect();
        assert_eq!((disks.len(), left == disks), (1, is_restorable), "{left:?}");
        assert_eq!(world.free_disks(), left);
        // The same command knows which VM it has begun.
        let world = World::new();
        world.lock().restorable = is_restorable;
        world.set_fault(Some((made, Fault::Lost)));
        let status = world.deploy(1).await.up();
        assert_eq!((status.left.len(), world.free_disks().len()), (0, 0));
    }
}

/// The command that recorded it may have created its VM, which may be out of sight for a while, and have served.
#[tokio::test(start_paused = true)]
async fn an_older_record_keeps_disks_under_recorded_uuids() {
    let before = |world: &World, name: &str| world.lock().calls.iter().position(|call| call.0 == name).unwrap() + 1;
    // A command that has recorded the UUID of its VM, and created none.
    let begun = async || {
        let twin = World::new();
        twin.give(Goal::Deploy(&wanted(1))).await.arrived();
        let world = World::new();
        world.dies((before(&twin, "add"), Fault::KilledBefore), world.deploy(1)).await;
        assert_eq!(world.own(), [""; 0]);
        world.lock().restorable = true;
        world
    };
    let twin = begun().await;
    twin.give_over(Goal::Deploy(&wanted(1))).await.arrived();
    let world = begun().await;
    world.set_fault(Some((before(&twin, "add.end"), Fault::Lost)));
    let status = world.give_over(Goal::Deploy(&wanted(1))).await.up();
    let left: BTreeSet<Uuid> = status.left.iter().map(|disk| disk.uuid).collect();
    assert_eq!((left.len(), world.free_disks()), (1, left.clone()), "it is named, and nobody has removed it");
}

/// The drawn UUID is in the data that may be restored, too: a missing record proves nothing.
#[tokio::test(start_paused = true)]
async fn only_disks_under_an_own_uuid_are_removed() {
    let drawn = Uuid::from_u128(0xe1);
    let mut wanted = wanted(1);
    wanted.nodes[0].drawn = Some(drawn);
    let twin = World::new();
    twin.give(Goal::Deploy(&wanted)).await.arrived();
    let made = 1 + twin.lock().calls.iter().position(|call| call.0 == "add.end").unwrap();
    for is_own in [false, true] {
        let world = World::new();
        world.lock().restorable = true;
        world.lock().drawn.extend(is_own.then_some(drawn));
        world.set_fault(Some((made, Fault::Lost)));
        let status = world.give(Goal::Deploy(&wanted)).await.up();
        let left = usize::from(!is_own);
        assert_eq!((status.left.len(), world.free_disks().len()), (left, left), "drawn by the same process: {is_own}");
    }
}

/// The VM is outside the searched folders, and comes back when it is too late.
#[tokio::test(start_paused = true)]
async fn no_cluster_begins_with_a_used_uuid() {
    let mut wanted = wanted(2);
    wanted.nodes[1].drawn = Some(Uuid::from_u128(0xe2));
    for is_restorable in [false, true] {
        let world = World::new();
        world.lock().restorable = is_restorable;
        world.plant("moved away", "cp2", 0xe2);
        world.lock().machines.last_mut().unwrap().vm.stamp = None;
        let before = world.lock().machines.clone();
        let refused = world.give(Goal::Deploy(&wanted)).await.failed();
        assert!(refused.contains("moved away") && refused.contains("may have served"), "{refused}");
        assert_eq!(world.lock().machines, before);
        assert!(world.lock().holds().is_empty(), "something was noted");
    }
}
