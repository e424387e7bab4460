//! VMs are found by their stamp: others are refused, or not seen at all.

use uuid::Uuid;

use super::command::{Given, begin, begun, end, entries, give, give_with};
use super::failing::stop_before;
use super::fake::fault::{At, Fault};
use super::fake::operator::{STRANGERS, Stranger};
use super::fake::{Ill, World, old_vm, stamp};
use crate::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Stamp, Vm};
use crate::testing::data_disk;
use crate::upgrade::entry::Event;
use crate::upgrade::{Action, LastUpgrade, Mode, Outcome, Request, Step, plan};

/// Why there is no plan; nothing if there is one.
pub async fn refusals(world: &World) -> Vec<&'static str> {
    let inventory = world.inventory().await;
    let refused = plan(&inventory, &world.target, &world.options, Uuid::from_u128(0x2d)).err();
    let mut codes: Vec<_> = refused.map(|refused| refused.0).unwrap_or_default().iter().map(|one| one.code).collect();
    codes.dedup();
    codes
}

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

/// Why there is no plan after a change of cp2's VM.
async fn after(change: impl FnOnce(&mut super::fake::Machine)) -> Vec<&'static str> {
    let world = world();
    world.change_vm(old_vm("cp2"), change);
    refusals(&world).await
}

#[tokio::test(start_paused = true)]
async fn vms_are_found_by_stamp_not_name() {
    assert!(after(|_| {}).await.is_empty());
    assert_eq!(after(|machine| machine.vm.stamp = None).await, ["upgrade.vm-not-ours"]);
    let other = Stamp { deployment: Uuid::from_u128(0xbad), node: "cp2".into(), swap: None };
    assert_eq!(after(|machine| machine.vm.stamp = Some(other)).await, ["upgrade.vm-not-ours"]);
    assert_eq!(after(|machine| machine.vm.stamp = stamp("cp3", None)).await, ["upgrade.vm-not-ours"]);
    assert!(after(|machine| machine.vm.name = "a name of the operator's".into()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn second_vm_with_same_bios_uuid_is_refused() {
    for stranger in [Stranger::Twin] {
        let world = world();
        world.add_stranger(&world.plan().await, 0, stranger, PowerState::Off);
        assert_eq!(refusals(&world).await, ["upgrade.vm-twice"]);
    }
    let world = world();
    world.add_own("cp2", old_vm("cp2"), |_| {});
    assert_eq!(refusals(&world).await, ["upgrade.vm-twice"]);
}

/// Backup software keeps it in a separate folder: it has the same stamp and BIOS UUID.
#[tokio::test(start_paused = true)]
async fn off_replica_without_disk_blocks_no_plan() {
    let world = world();
    let refused = async |change: &dyn Fn(&mut Vm)| {
        let mut inventory = world.inventory().await;
        let mut replica = inventory.vms_of(Some(old_vm("cp2").into()))[0].clone();
        replica.reference.id.push_str("-replica");
        (replica.name, replica.power) = ("cp2-replica".to_owned(), PowerState::Off);
        change(&mut replica);
        inventory.others.push(replica);
        let planned = plan(&inventory, &world.target, &world.options, Uuid::from_u128(0x2d));
        planned.err().map(|refused| refused.0[0].code)
    };
    let has_others = |vm: &mut Vm| {
        for disk in &mut vm.disks {
            disk.reference.uuid = Uuid::from_u128(disk.reference.uuid.as_u128() + 0x1000);
        }
    };
    assert_eq!(refused(&has_others).await, None);
    assert_eq!(refused(&|vm| vm.disks.truncate(1)).await, None);
    assert_eq!(refused(&|vm| vm.stamp = None).await, Some("upgrade.vm-twice"), "it holds the node's disk");
    for power in [PowerState::On, PowerState::Suspended] {
        assert_eq!(refused(&|vm| (vm.disks, vm.power) = (Vec::new(), power)).await, Some("upgrade.vm-twice"));
    }
    // By its BIOS UUID alone, and not stamped, as the replica of another VM with the UUID that a node says.
    world.add_own("replica", old_vm("cp2"), |machine| machine.vm.stamp = None);
    assert!(refusals(&world).await.is_empty());
}

/// A node's administrator can make it say any BIOS UUID, and copies of one template may have the same.
#[tokio::test(start_paused = true)]
async fn names_of_foreign_vms_are_not_shown() {
    let world = world();
    let foreign = |name: &'static str| {
        move |machine: &mut super::fake::Machine| {
            (machine.vm.stamp, machine.vm.name) = (None, name.to_owned());
        }
    };
    world.change_vm(old_vm("cp2"), foreign("payroll-1"));
    world.add_own("cp2", old_vm("cp2"), foreign("payroll-2"));
    assert_eq!(refusals(&world).await, ["upgrade.vm-twice"]);
    let inventory = world.inventory().await;
    let refused = plan(&inventory, &world.target, &world.options, Uuid::from_u128(0x2d)).unwrap_err();
    let words: Vec<&str> = refused.0.iter().map(|one| one.reason.as_str()).collect();
    assert!(words.iter().all(|said| !said.contains("payroll")), "{words:?}");
    assert!(words[0].starts_with("2 VMs have the same BIOS UUID"), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn copy_appearing_during_upgrade_pauses_it() {
    let world = world();
    begin(&world).await;
    world.add_own("cp2", old_vm("cp2"), |_| {});
    give(&world, Request::Resume).await.pauses(&["one is a copy of the other"]);
    assert_eq!(world.called("import"), 0);
    world.lock().machines.pop();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn snapshots_tasks_and_foreign_disks_are_refused() {
    assert_eq!(after(|machine| machine.vm.snapshots.push("before".into())).await, ["upgrade.vm-snapshot"]);
    let parent = "[datastore1] cp2/data-base.vmdk".to_owned();
    assert_eq!(after(|machine| machine.vm.disks[1].parent = Some(parent)).await, ["upgrade.vm-snapshot"]);
    assert_eq!(after(|machine| machine.vm.tasks.push("Relocate".into())).await, ["upgrade.vm-task"]);
    let at = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[datastore1] fcd/volume.vmdk".into() };
    let volume = Disk { kind: DiskKind::Foreign, ..data_disk(at) };
    assert_eq!(after(|machine| machine.vm.disks.push(volume)).await, ["upgrade.vm-disks"]);
    let world = world();
    let after = async |change: &dyn Fn(&mut Vm)| {
        let mut inventory = world.inventory().await;
        change(&mut inventory.vms[1]);
        plan(&inventory, &world.target, &world.options, Uuid::from_u128(0x2d)).unwrap_err().0[0].code
    };
    assert_eq!(after(&|vm| vm.adapters.clear()).await, "upgrade.vm-adapter");
    for power in [PowerState::Off, PowerState::Suspended, PowerState::Unknown] {
        assert_eq!(after(&|vm| vm.power = power).await, "upgrade.vm-power", "{power}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_lookalikes_are_neither_seen_nor_touched() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        for ill in [Ill::Well, Ill::NeverGood] {
            let world = begun(3, mode, ill).await;
            let plan =
                crate::upgrade::entry::parse(&crate::upgrade::journal::last(&world).await.unwrap().unwrap()).unwrap();
            let plan = crate::upgrade::entry::plan_of(&plan).unwrap().clone();
            for node in 0..3 {
                for stranger in STRANGERS {
                    world.add_stranger(&plan, node, stranger, PowerState::On);
                }
            }
            let outcome = if ill == Ill::Well { Outcome::Upgraded } else { Outcome::RolledBack };
            assert_eq!(end(&world, Request::Resume).await, outcome);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn name_taken_since_the_plan_pauses() {
    let world = world();
    let plan = world.plan().await;
    begin(&world).await;
    world.add_stranger(&plan, 0, Stranger::Unstamped, PowerState::Off);
    {
        let mut state = world.lock();
        (state.machines[0].folder, state.machines[0].vm.name) = ("kaas", plan.nodes[0].new_name.clone());
    }
    give(&world, Request::Resume).await.pauses(&["the name is taken"]);
    world.lock().machines[0].vm.name = "somebody's".into();
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn disk_attached_elsewhere_is_not_taken() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let plan = world.plan().await;
    begin(&world).await;
    stop_before(&world, Request::Resume, Step::of(Action::Attach, 0)).await;
    world.add_stranger(&plan, 0, Stranger::Unstamped, PowerState::Off);
    let strangers_own =
        std::mem::replace(&mut world.lock().machines[0].vm.disks[1].reference, plan.nodes[0].disk.clone());
    give(&world, Request::Resume).await.pauses(&["holds the disk"]);
    world.lock().machines[0].vm.disks[1].reference = strangers_own;
    // It could not be given to the new VM: the node has gone back as soon as it can.
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn second_vm_of_a_swap_is_not_mistaken() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    let plan = world.plan_of_journal().await;
    stop_before(&world, Request::Resume, Step::of(Action::Prepare, 0)).await;
    // A backup has cloned the new VM, its stamp with it: the copy comes first in the listing.
    world.add_own("clone", Uuid::from_u128(0xc1), |machine| {
        machine.vm.stamp = stamp("cp1", Some(plan.nodes[0].swap));
        machine.whole = false;
    });
    world.lock().machines.rotate_right(1);
    give(&world, Request::Resume).await.pauses(&["clone"]);
    world.lock().machines.remove(0);
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn foreign_vm_with_swap_stamp_is_never_removed() {
    for (begun, verb) in [(false, Request::Resume), (true, Request::Resume), (true, Request::Rollback)] {
        let world = world();
        begin(&world).await;
        // The swaps of all nodes are in the journal from its first entry on.
        let node = world.plan_of_journal().await.nodes[1].clone();
        world.add_own("payroll", Uuid::from_u128(0x9a), |machine| {
            machine.vm.stamp = stamp(&node.name, Some(node.swap));
            machine.ours = false;
        });
        if begun {
            stop_before(&world, Request::Resume, Step::of(Action::CloneVm, 1)).await;
        }
        let reason = give(&world, verb).await.paused();
        assert!(reason.starts_with("payroll (") && reason.ends_with("[upgrade.vm-left]"), "{verb:?}: {reason}");
        // The next try and a repeated command do not remove it either.
        assert_eq!(give(&world, verb).await.paused(), reason);
        let is_there = |world: &World| world.lock().machines.iter().any(|machine| machine.vm.name == "payroll");
        assert!(is_there(&world));
        // Its owner takes the stamp away.
        world.lock().machines.iter_mut().filter(|it| it.vm.name == "payroll").for_each(|it| it.vm.stamp = None);
        let outcome = if verb == Request::Resume { Outcome::Upgraded } else { Outcome::RolledBack };
        assert_eq!(end(&world, verb).await, outcome);
        assert!(is_there(&world));
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_vm_is_known_by_its_noted_uuid() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    stop_before(&world, Request::Resume, Step::of(Action::CloneVm, 0)).await;
    let noted = async || {
        let entries = entries(&world).await.into_iter();
        let noted = entries.filter_map(|entry| match entry.event {
            Event::Begun { step, vm, .. } if step.action == Action::CloneVm => Some(vm.expect("a BIOS UUID")),
            _ => None,
        });
        noted.collect::<Vec<_>>()
    };
    let drawn = noted().await;
    assert_eq!(drawn.len(), 1);
    let at = At { call: call_of_import_finish().await, fault: Fault::CutBefore, lasting: false };
    assert!(matches!(give_with(&world, Request::Resume, None, Some(at)).await, Given::Killed));
    let half = world.lock().machines.iter().find(|machine| !machine.whole).map(|machine| machine.vm.uuid());
    assert_eq!(half, Some(drawn[0]));
    let last = LastUpgrade::find(&world).await.unwrap();
    assert!(last.noted().unwrap().vms.contains(&drawn[0]), "who removes the cluster knows it");
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!(world.new_vm("cp1").uuid(), drawn[0]);
    assert_eq!(noted().await, drawn, "one is enough");
}

/// The call in the middle of an import, of a command that resumes where one is begun.
async fn call_of_import_finish() -> usize {
    let twin = World::of(1, Mode::Rolling, Ill::Well);
    begin(&twin).await;
    stop_before(&twin, Request::Resume, Step::of(Action::CloneVm, 0)).await;
    give(&twin, Request::Resume).await.arrived();
    twin.calls().iter().position(|call| call.name == "import.finish").unwrap() + 1
}
