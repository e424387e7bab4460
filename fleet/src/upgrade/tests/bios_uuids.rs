//! Nodes report their BIOS UUIDs in either order of bytes. All other tests have the old image report the swapped one.

use contract::bios_uuid::BiosUuid;
use uuid::Uuid;

use super::command::{begin, deployment, end};
use super::fake::{Ill, NODES, World, address, old_vm};
use crate::hypervisor::{PowerState, named_twice};
use crate::upgrade::{Mode, Nodes as _, Outcome, Request, plan};

/// A cluster whose old image reports its UUID in vCenter's order, or in the other one.
fn world(in_order: bool) -> World {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let mut state = world.lock();
    state.in_order_uuids = in_order;
    for (content, node) in state.contents.iter_mut().zip(NODES) {
        let vm = BiosUuid::from(old_vm(node));
        content.holder = Some(if in_order { vm } else { vm.swapped() });
    }
    drop(state);
    world
}

/// The other order of a VM's UUID.
fn other(vm: Uuid) -> Uuid {
    BiosUuid::from(vm).orders()[1]
}

async fn reported(world: &World, node: &str) -> String {
    world.facts(address(node)).await.unwrap().holder.unwrap().to_string()
}

#[tokio::test(start_paused = true)]
async fn images_are_swapped_whichever_order_they_report() {
    for in_order in [false, true] {
        let world = world(in_order);
        let before = if in_order { old_vm("cp1") } else { other(old_vm("cp1")) };
        assert_eq!(reported(&world, "cp1").await, before.to_string());
        begin(&world).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        assert_eq!(reported(&world, "cp1").await, world.new_vm("cp1").uuid().to_string());
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
        assert_eq!(reported(&world, "cp1").await, before.to_string());

        let world = self::world(in_order);
        begin(&world).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
    }
}

#[tokio::test(start_paused = true)]
async fn plan_is_refused_if_both_orders_match() {
    for (in_order, power) in [(false, PowerState::Off), (true, PowerState::On)] {
        let world = world(in_order);
        // It is not the deployment's, so no message names it.
        world.add_own("payroll", other(old_vm("cp2")), |machine| {
            (machine.vm.stamp, machine.vm.power) = (None, power);
        });
        let refused = plan(&world.inventory().await, &world.target, &world.options, Uuid::from_u128(0x2d)).unwrap_err();
        let [one] = refused.0.as_slice() else { panic!("{refused}") };
        assert_eq!((one.code, one.subject.as_str()), ("upgrade.vm-twice", "cp2"));
        for word in [&old_vm("cp2").to_string(), &other(old_vm("cp2")).to_string(), "uuid.bios"] {
            assert!(one.reason.contains(word), "{}", one.reason);
        }
        assert!(!one.reason.contains("payroll"), "{}", one.reason);
    }
}

#[tokio::test(start_paused = true)]
async fn adopt_takes_either_order_and_refuses_both() {
    for in_order in [false, true] {
        let world = world(in_order);
        for machine in &mut world.lock().machines {
            machine.vm.stamp = None;
        }
        let adoptions = deployment(&world, &|_| {}).adoptable().await.unwrap();
        let taken: Vec<_> = adoptions.iter().map(|adoption| (adoption.uuid, adoption.vm.uuid())).collect();
        assert_eq!(taken, NODES.map(|node| (old_vm(node), old_vm(node))));
        world.add_own("payroll", other(old_vm("cp3")), |machine| machine.vm.stamp = None);
        let refused = deployment(&world, &|_| {}).adoptable().await.unwrap_err().to_string();
        assert!(refused.starts_with("cp3: the BIOS UUID") && refused.contains("in another order"), "{refused}");
    }
}

#[test]
fn copies_of_one_order_are_not_two_orders() {
    let world = world(false);
    let vm = world.old_vm("cp1");
    let guest = Some(BiosUuid::from(vm.uuid()).swapped());
    assert_eq!(named_twice([&vm, &vm], guest), None);
    let mut both = vm.clone();
    both.reference.uuid = other(vm.uuid());
    assert!(named_twice([&vm, &both], guest).is_some());
    assert_eq!(named_twice([&vm, &both], None), None);
    assert!(vm.is_named(guest) && both.is_named(guest) && !vm.is_named(None));
    assert!(!vm.is_named(Some(BiosUuid::from(old_vm("cp2")))));
}
