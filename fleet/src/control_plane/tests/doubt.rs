//! Disks whose removal was requested by a command that did not get the result.

use uuid::Uuid;

use super::fake::{DESTROY, DESTROY_ALL, Fault, World, destroy_confirmed, wanted};
use crate::control_plane::{Goal, HeldDisk, RunOutcome, UnattachedDisk};
use crate::hypervisor::{DiskRef, Vm};

/// A cluster of one node, whose command was killed right before it requested the removal of the disk. The disk was moved since.
/// If another disk was attached to its VM, the VM still exists.
async fn moved_from(has_another: bool) -> (World, DiskRef) {
    let begun = async || {
        let world = World::removing(1).await;
        if has_another {
            world.hang("cp1", &DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] payroll.vmdk".to_owned() });
        }
        world
    };
    let twin = begun().await;
    twin.set_fault(None);
    twin.give_over(DESTROY_ALL).await.arrived();
    let removal = 1 + twin.lock().calls.iter().position(|call| call.0 == "delete_disk").unwrap();
    let world = begun().await;
    // A VM outside the cluster has the same name.
    let held = world.lock().machines.iter().find_map(|machine| Some(machine.vm.disks.first()?.reference.clone()));
    let disk = held.unwrap();
    world.dies((removal, Fault::KilledBefore), world.give_over(DESTROY_ALL)).await;
    assert!(world.lock().disks.remove(&disk.uuid).is_some(), "it was asked for");
    assert_eq!(world.own().len(), usize::from(has_another));
    (world, disk)
}

async fn moved() -> (World, DiskRef) {
    moved_from(false).await
}

fn missing(disk: &DiskRef) -> UnattachedDisk {
    UnattachedDisk { doubtful: vec![disk.clone()], ..UnattachedDisk::default() }
}

#[tokio::test(start_paused = true)]
async fn a_returned_disk_stays_until_shown_for_removal() {
    let (world, disk) = moved().await;
    let shown = world.shown().await;
    assert_eq!(shown, missing(&disk));
    world.lock().disks.insert(disk.uuid, true);
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)));
    assert!(status.doubtful.is_empty() && world.lock().disks.contains_key(&disk.uuid), "{status:?}");
    let shown = world.shown().await;
    assert_eq!(shown, UnattachedDisk { goes: vec![disk], ..UnattachedDisk::default() });
    let status = world.give_over(destroy_confirmed(&shown)).await.gone();
    assert_eq!((status.left, world.lock().disks.len()), (vec![], 0));
}

/// The same disk in another directory.
fn elsewhere(disk: &DiskRef) -> DiskRef {
    DiskRef { path: "[other] moved.vmdk".to_owned(), ..disk.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_disk_back_on_its_vm_stays() {
    for is_elsewhere in [false, true] {
        let (world, disk) = moved_from(true).await;
        let shown = world.shown().await;
        assert_eq!(shown, missing(&disk));
        let now = if is_elsewhere { elsewhere(&disk) } else { disk.clone() };
        world.hang("cp1", &now);
        let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
        assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
        assert!(status.left.contains(&now) && status.forgotten.is_empty(), "{status:?}");
        assert!(status.doubtful.is_empty() && world.lock().disks.contains_key(&disk.uuid), "{status:?}");
        // From now on it is shown as one to remove.
        assert_eq!(world.shown().await, UnattachedDisk { goes: vec![now], ..UnattachedDisk::default() });
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_held_elsewhere_is_never_forgotten() {
    let held = async |is_restamped: bool| {
        let (world, disk) = moved_from(true).await;
        let before = world.shown().await;
        let now = elsewhere(&disk);
        world.hang("cp1", &now);
        if is_restamped {
            let mut state = world.lock();
            let holds = state.machines.iter_mut().find(|machine| machine.vm.disk(disk.uuid).is_some()).unwrap();
            holds.vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbad);
        }
        let shown = world.shown().await;
        let [HeldDisk { disk: there, by }] = shown.held.as_slice() else { panic!("{shown:?}") };
        assert!(*there == now && by.starts_with("cp1 ("), "{shown:?}");
        assert!(shown.goes.is_empty() && shown.doubtful.is_empty(), "{shown:?}");
        (world, now, before, shown)
    };
    // It is removed with the cluster's VM that holds it, if that was shown.
    let (world, now, _, shown) = held(false).await;
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
    assert!(!status.left.contains(&now) && !world.lock().disks.contains_key(&now.uuid), "{status:?}");
    // A disk of another deployment's VM stays, and is named at its present place, also if it was shown as missing before.
    let (world, now, before, shown) = held(true).await;
    for shown in [before, shown] {
        let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
        assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
        assert!(status.left.contains(&now) && status.doubtful.is_empty() && status.forgotten.is_empty(), "{status:?}");
    }
}

/// An earlier command was to remove it. The operator of this one was shown its holder, and not that it is removed.
#[tokio::test(start_paused = true)]
async fn a_disk_released_after_it_was_shown_stays() {
    let (world, disk) = moved_from(true).await;
    world.hang("cp1", &disk);
    let change = |act: fn(&mut Vm, Uuid)| {
        let mut state = world.lock();
        let holds = state.machines.iter_mut().find(|machine| machine.vm.disk(disk.uuid).is_some()).unwrap();
        act(&mut holds.vm, disk.uuid);
    };
    change(|vm, _| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbad));
    let shown = world.shown().await;
    let [HeldDisk { disk: there, by }] = shown.held.as_slice() else { panic!("{shown:?}") };
    assert!(*there == disk && by.starts_with("cp1 ("), "{shown:?}");
    assert!(shown.goes.is_empty() && shown.doubtful.is_empty(), "{shown:?}");
    change(|vm, disk| vm.disks.retain(|held| held.reference.uuid != disk));
    let given = world.give_over(destroy_confirmed(&shown)).await;
    assert!(world.lock().disks.contains_key(&disk.uuid), "{given:?}");
    let (_, status) = given.arrived();
    assert!(status.left.contains(&disk), "{status:?}");
    // From now on it is shown as one to remove.
    assert_eq!(world.shown().await, UnattachedDisk { goes: vec![disk], ..UnattachedDisk::default() });
}

#[tokio::test(start_paused = true)]
async fn a_confirmed_missing_disk_is_no_longer_named() {
    let (world, disk) = moved().await;
    let status = world.give_over(DESTROY_ALL).await.gone();
    assert_eq!((status.doubtful, world.lock().emptied), (vec![disk.uuid], 0));
    let shown = world.shown().await;
    assert_eq!(shown, missing(&disk));
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, status.left, world.lock().emptied), (RunOutcome::Gone, vec![], 1));
    assert_eq!(status.forgotten, [disk]);
    assert_eq!(world.shown().await, UnattachedDisk::default());
}

/// Another operator's command was killed, and vCenter continues its request.
#[tokio::test(start_paused = true)]
async fn an_existing_disk_is_doubtful_while_removals_run() {
    for (is_held, is_unsaid) in [(false, false), (true, false), (false, true), (true, true)] {
        let (world, disk) = moved_from(is_held).await;
        if is_held {
            world.hang("cp1", &disk);
        } else {
            world.lock().disks.insert(disk.uuid, true);
        }
        // The doubt also stays if it is unknown whether a removal runs.
        let going = |goes: bool| {
            let mut state = world.lock();
            (state.others_remove, state.removals_unsaid) = (goes && !is_unsaid, goes && is_unsaid);
        };
        going(true);
        let (arrived, status) = world.give_over(DESTROY).await.arrived();
        assert!(arrived == RunOutcome::Gone && status.left.contains(&disk), "{arrived:?} {status:?}");
        assert_eq!(status.doubtful, [disk.uuid], "held: {is_held}");
        // The doubt also stays if the disk was shown as missing before.
        let shown = missing(&disk);
        let (_, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
        assert_eq!(status.doubtful, [disk.uuid], "held: {is_held}");
        going(false);
        let (_, status) = world.give_over(DESTROY).await.arrived();
        assert!(status.left.contains(&disk) && status.doubtful.is_empty(), "{status:?}");
    }
}

/// vCenter's removal of it, which another command had requested, has ended since it was attached to the VM.
#[tokio::test(start_paused = true)]
async fn a_missing_disk_of_a_vm_stays_doubtful() {
    let (world, disk) = moved_from(true).await;
    world.hang("cp1", &disk);
    world.lock().disks.remove(&disk.uuid);
    let (arrived, status) = world.give_over(DESTROY).await.arrived();
    assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
    assert!(status.left.contains(&disk), "{status:?}");
    assert_eq!(status.doubtful, [disk.uuid]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_disk_of_a_vm_is_reported() {
    for is_restamped in [false, true] {
        let (world, disk) = moved_from(true).await;
        world.hang("cp1", &disk);
        {
            let mut state = world.lock();
            state.disks.remove(&disk.uuid);
            let names = state.machines.iter_mut().find(|machine| machine.vm.disk(disk.uuid).is_some()).unwrap();
            if is_restamped {
                names.vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbad);
            }
        }
        assert_eq!(world.shown().await, missing(&disk), "restamped: {is_restamped}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_cluster_knows_doubtful_disks() {
    let (world, disk) = moved().await;
    world.give_over(DESTROY_ALL).await.arrived();
    let wanted = wanted(1);
    for is_there in [false, true] {
        if is_there {
            world.lock().disks.insert(disk.uuid, true);
        }
        let status = world.give(Goal::Deploy(&wanted)).await.up();
        assert_eq!(status.left.as_slice(), std::slice::from_ref(&disk));
        assert_eq!(status.doubtful, if is_there { vec![] } else { vec![disk.uuid] });
    }
}
