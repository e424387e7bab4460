//! VMs that were imported by hand are taken into the deployment.

use uuid::Uuid;

use super::command::{begin, deployment, end};
use super::fake::operator::Stranger;
use super::fake::{Ill, World, old_vm, stamp};
use crate::authority::TakeOver;
use crate::hypervisor::{PowerState, Stamp};
use crate::upgrade::{Mode, Outcome, Verb};

/// A cluster whose VMs nobody has stamped.
fn unstamped() -> World {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    for machine in &mut world.lock().machines {
        machine.vm.stamp = None;
    }
    world
}

async fn refused(world: &World) -> String {
    deployment(world, &|_| {}).adoptable().await.unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn vms_that_were_imported_by_hand_are_adopted_and_upgraded() {
    let world = unstamped();
    let deployment = deployment(&world, &|_| {});
    let adoptions = deployment.adoptable().await.unwrap();
    let shown: Vec<_> = adoptions.iter().map(|adoption| (&*adoption.node, adoption.uuid, adoption.vm.uuid())).collect();
    assert_eq!(shown, ["cp1", "cp2", "cp3"].map(|node| (node, old_vm(node), old_vm(node))));
    assert_eq!(world.called("stamp"), 0);
    deployment.adopt(&adoptions, TakeOver::FromTheDead).await.unwrap();
    assert!(deployment.adoptable().await.unwrap().is_empty());
    assert_eq!(world.old_vm("cp2").stamp, stamp("cp2", None));
    begin(&world).await;
    assert_eq!(end(&world, Verb::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_certain_is_not_adopted() {
    let world = unstamped();
    let stamped = World::of(3, Mode::Rolling, Ill::Well);
    world.add_stranger(&stamped.plan().await, 0, Stranger::Twin, PowerState::Off);
    assert!(refused(&world).await.contains("one is a copy of the other"));
    let world = unstamped();
    world.lock().contents[1].holder = Some(Uuid::from_u128(9));
    assert!(refused(&world).await.contains("no such VM"));
    let world = unstamped();
    let other = Stamp { deployment: Uuid::from_u128(0xbad), node: "cp2".into(), swap: None };
    world.change_vm(old_vm("cp2"), |machine| machine.vm.stamp = Some(other));
    assert!(refused(&world).await.contains("is stamped as cp2 of the deployment"));
    let world = unstamped();
    world.change_vm(old_vm("cp2"), |machine| machine.vm.stamp = stamp("cp3", None));
    assert!(refused(&world).await.contains("is stamped as cp3"));
    let world = unstamped();
    world.change_vm(old_vm("cp2"), |machine| machine.vm.power = PowerState::Off);
    assert!(refused(&world).await.contains("asking cp2"));
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_has_changed_since_it_was_shown_is_not_stamped() {
    let world = unstamped();
    let deployment = deployment(&world, &|_| {});
    let adoptions = deployment.adoptable().await.unwrap();
    world.change_vm(old_vm("cp1"), |machine| machine.vm.name = "another".into());
    let error = format!("{:#}", deployment.adopt(&adoptions, TakeOver::FromTheDead).await.unwrap_err());
    assert!(error.contains("stamping the VM cp1") && error.contains("not as it was seen"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_a_node_claims_and_that_has_no_data_disk_is_not_adopted() {
    let world = unstamped();
    let foreign = Uuid::from_u128(0xf0e);
    world.add_own("web", foreign, |machine| {
        machine.vm.stamp = None;
        machine.vm.power = PowerState::On;
    });
    world.lock().contents[1].holder = Some(foreign);
    let reason = refused(&world).await;
    assert!(reason.contains("web") && reason.contains("holds 0 data disks"), "{reason}");
}
