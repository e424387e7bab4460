//! Disks whose removal was asked for by a command that was not told what came of it.

use super::fake::{DESTROY_ALL, Fault, Given, World, destroy_confirmed, wanted};
use crate::deploy::{Arrived, Unheld, Wish};
use crate::hypervisor::DiskRef;

/// A cluster of one node, whose disk a command was about to have removed when it was killed; somebody has moved the disk since.
async fn moved() -> (World, DiskRef) {
    let begun = async || {
        let world = World::with(1).await;
        world.lock().removes_used = true;
        world
    };
    let twin = begun().await;
    twin.set_fault(None);
    twin.give_over(DESTROY_ALL).await.arrived();
    let removal = 1 + twin.lock().calls.iter().position(|call| call.0 == "delete_disk").unwrap();
    let world = begun().await;
    // Another one's VM is called as this node is, too.
    let held = world.lock().machines.iter().find_map(|machine| Some(machine.vm.disks.first()?.reference.clone()));
    let disk = held.unwrap();
    world.set_fault(Some((removal, Fault::KilledBefore)));
    assert!(matches!(world.give_over(DESTROY_ALL).await, Given::Killed));
    world.set_fault(None);
    assert!(world.lock().disks.remove(&disk.uuid).is_some(), "it was asked for");
    (world, disk)
}

fn missing(disk: &DiskRef) -> Unheld {
    Unheld { goes: Vec::new(), doubtful: vec![disk.clone()] }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_back_after_it_was_shown_as_missing_stays_until_it_is_shown_as_what_goes() {
    let (world, disk) = moved().await;
    let shown = world.shown().await;
    assert_eq!(shown, missing(&disk));
    world.lock().disks.insert(disk.uuid, true);
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, status.left.as_slice()), (Arrived::Gone, std::slice::from_ref(&disk)));
    assert!(status.doubtful.is_empty() && world.lock().disks.contains_key(&disk.uuid), "{status:?}");
    let shown = world.shown().await;
    assert_eq!(shown, Unheld { goes: vec![disk], doubtful: Vec::new() });
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, status.left, world.lock().disks.len()), (Arrived::Gone, vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_not_there_is_named_no_more_once_that_was_shown_and_confirmed() {
    let (world, disk) = moved().await;
    let (arrived, status) = world.give_over(DESTROY_ALL).await.arrived();
    assert_eq!((arrived, status.doubtful, world.lock().emptied), (Arrived::Gone, vec![disk.uuid], 0));
    let shown = world.shown().await;
    assert_eq!(shown, missing(&disk));
    let (arrived, status) = world.give_over(destroy_confirmed(&shown)).await.arrived();
    assert_eq!((arrived, status.left, world.lock().emptied), (Arrived::Gone, vec![], 1));
    assert_eq!(world.shown().await, Unheld::default());
}

#[tokio::test(start_paused = true)]
async fn the_next_cluster_in_its_place_knows_of_a_disk_that_may_be_gone_until_it_is_seen() {
    let (world, disk) = moved().await;
    world.give_over(DESTROY_ALL).await.arrived();
    let wanted = wanted(1);
    for is_there in [false, true] {
        if is_there {
            world.lock().disks.insert(disk.uuid, true);
        }
        let (arrived, status) = world.give(Wish::Deploy(&wanted)).await.arrived();
        assert!(matches!(arrived, Arrived::Up(_)), "{arrived:?}");
        assert_eq!(status.left.as_slice(), std::slice::from_ref(&disk));
        assert_eq!(status.doubtful, if is_there { vec![] } else { vec![disk.uuid] });
    }
}
