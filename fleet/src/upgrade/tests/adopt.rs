//! Adopts VMs that were imported by hand.

use contract::bios_uuid::BiosUuid;
use tokio::sync::watch;
use uuid::Uuid;

use super::command::{begin, deployment, end};
use super::fake::operator::Stranger;
use super::fake::{Ill, World, old_vm, stamp};
use crate::Cancelled;
use crate::hypervisor::{PowerState, Stamp};
use crate::lease::TakeOver;
use crate::upgrade::{Deployment, Mode, Outcome, Request};

/// A cluster whose VMs have no stamp.
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
async fn vms_imported_by_hand_are_adopted_and_upgraded() {
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
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn uncertain_vm_is_not_adopted() {
    let world = unstamped();
    let stamped = World::of(3, Mode::Rolling, Ill::Well);
    world.add_stranger(&stamped.plan().await, 0, Stranger::Twin, PowerState::Off);
    assert!(refused(&world).await.contains("one is a copy of the other"));
    let world = unstamped();
    world.lock().contents[1].holder = Some(BiosUuid::from_u128(9));
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
    // Before any is stamped.
    let world = unstamped();
    world.move_away(old_vm("cp3"));
    assert!(refused(&world).await.contains("would not be searched for"));
}

#[tokio::test(start_paused = true)]
async fn moved_adopted_vm_is_reported_with_its_place() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    assert!(deployment(&world, &|_| {}).adoptable().await.unwrap().is_empty());
    world.move_away(old_vm("cp2"));
    assert!(refused(&world).await.contains("would not be searched for"));
    world.lock().unlisted.clear();
    assert!(deployment(&world, &|_| {}).adoptable().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelled_adoption_releases_the_lease_between_two_vms() {
    let mut partly = 0;
    for call in 1.. {
        let world = unstamped();
        let adoptions = deployment(&world, &|_| {}).adoptable().await.unwrap();
        world.fault(None);
        let (cancel, cancelled) = watch::channel(false);
        world.lock().faults.cancel = Some((call, cancel));
        let asked = Deployment { cancelled, ..deployment(&world, &|_| {}) };
        let adopted = asked.adopt(&adoptions, TakeOver::FromTheDead).await;
        world.lock().faults.cancel = None;
        let (calls, stamped) = (world.calls().len(), world.called("stamp"));
        if calls < call {
            adopted.unwrap();
            break;
        }
        match adopted {
            // It was asked when the last one was stamped.
            Ok(()) => assert_eq!(stamped, 3, "asked at call {call} of {calls}"),
            Err(error) => {
                assert!(error.is::<Cancelled>(), "asked at call {call}: {error:#}");
                let last = world.store().holds.into_values().next_back();
                let is_given_back = last.is_none_or(|it| it.contains_key("released") || it.contains_key("withdrawn"));
                assert!(is_given_back, "asked at call {call} of {calls}");
                partly += usize::from(stamped == 1 || stamped == 2);
            }
        }
        let again = deployment(&world, &|_| {});
        let rest = again.adoptable().await.unwrap();
        assert_eq!(rest.len(), 3 - stamped, "asked at call {call}");
        again.adopt(&rest, TakeOver::FromTheDead).await.unwrap();
        assert!(again.adoptable().await.unwrap().is_empty());
    }
    assert!(partly > 0);
}

#[tokio::test(start_paused = true)]
async fn vm_changed_since_shown_is_not_stamped() {
    let world = unstamped();
    let deployment = deployment(&world, &|_| {});
    let adoptions = deployment.adoptable().await.unwrap();
    world.change_vm(old_vm("cp1"), |machine| machine.vm.name = "another".into());
    let error = format!("{:#}", deployment.adopt(&adoptions, TakeOver::FromTheDead).await.unwrap_err());
    assert!(error.contains("stamping the VM cp1") && error.contains("not as it was seen"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn claimed_vm_without_data_disk_is_not_adopted() {
    let world = unstamped();
    let foreign = Uuid::from_u128(0xf0e);
    world.add_own("web", foreign, |machine| {
        machine.vm.stamp = None;
        machine.vm.power = PowerState::On;
    });
    world.lock().contents[1].holder = Some(foreign.into());
    let reason = refused(&world).await;
    assert!(reason.contains("web") && reason.contains("holds 0 data disks"), "{reason}");
}
