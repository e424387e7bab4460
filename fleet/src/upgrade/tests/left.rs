//! The operator's work with the VMs that stay after abandoning: vCenter deletes attached disks with their VM.

use super::command::{entries, give, give_with};
use super::failing::{before, call_of, world};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, data, disk, old_vm};
use crate::hypervisor::{DiskKind, PowerState};
use crate::upgrade::entry::Event;
use crate::upgrade::{Action, Mode, Outcome, Request, Step};

/// The note on the first node after abandoning.
async fn told(world: &World) -> String {
    assert_eq!(give(world, Request::Abandon).await.outcome(), Outcome::Abandoned);
    let keeps = |event| match event {
        Event::Done { step, note, .. } if step == Step::of(Action::Keep, 0) => Some(note),
        _ => None,
    };
    entries(world).await.into_iter().find_map(|entry| keeps(entry.event)).expect("a note")
}

/// The VMs that the operator is to remove.
fn left(told: &str) -> &str {
    told.split("; ").find(|part| part.starts_with("left: ")).unwrap_or("")
}

#[tokio::test(start_paused = true)]
async fn vm_with_the_data_disk_is_never_removable() {
    for (action, new_holds) in [(Action::PowerOn, true), (Action::Fence, false), (Action::Detach, false)] {
        let world = before(1, Step::of(action, 0)).await;
        let (old, new) = (world.old_vm("cp1").to_string(), world.new_vm("cp1").to_string());
        let (holder, idle) = if new_holds { (new, old) } else { (old, new) };
        let told = told(&world).await;
        assert!(told.contains(&format!("{holder} holds the node's disk and is off")), "{action:?}: {told}");
        assert!(told.contains("power it on, never remove it"), "{action:?}: {told}");
        assert_eq!(left(&told), format!("left: {idle}"), "{action:?}: {told}");
        let connect = told.contains("connect its network adapters");
        assert_eq!(connect, action == Action::Detach, "the old VM is disconnected by then: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_attached_disk_is_not_removed() {
    let world = world(1, Mode::Rolling, Ill::Well).await;
    let call = call_of("attach", Request::Resume, Ill::Well).await;
    let at = At { call, fault: Fault::CutLate, lasting: false };
    give_with(&world, Request::Resume, None, Some(at)).await;
    let (old, new) = (world.old_vm("cp1"), world.new_vm("cp1"));
    assert!(new.disk(disk("cp1").uuid).is_none(), "it comes later");
    let told = told(&world).await;
    assert!(told.contains(&format!("{new} holds the node's disk")), "{told}");
    assert_eq!(left(&told), format!("left: {old}"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn vm_with_another_disk_is_not_removable() {
    for kind in [DiskKind::Data, DiskKind::Foreign] {
        let world = before(1, Step::of(Action::Attach, 0)).await;
        let other = crate::hypervisor::Disk { kind, ..data(disk("cp2")) };
        world.change_vm(old_vm("cp1"), |machine| machine.vm.disks.push(other));
        let (old, new) = (world.old_vm("cp1"), world.new_vm("cp1"));
        let told = told(&world).await;
        assert_eq!(left(&told), format!("left: {new}"), "{told}");
        assert!(told.contains(&format!("{old} holds the disk {}", disk("cp2").path)), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn vm_not_known_as_off_is_not_removable() {
    for power in [PowerState::Suspended, PowerState::Unknown] {
        let world = before(1, Step::of(Action::Attach, 0)).await;
        world.change_vm(old_vm("cp1"), |machine| machine.vm.power = power);
        let (old, new) = (world.old_vm("cp1"), world.new_vm("cp1"));
        let told = told(&world).await;
        assert_eq!(left(&told), format!("left: {new}"), "{told}");
        assert!(told.contains(&format!("{old} is {power}")), "{told}");
    }
}
