//! Proofs right before a VM is powered on, loses its disk or is removed: one test for each branch.

use uuid::Uuid;

use crate::hypervisor::{PowerState, Vm};
use crate::lease::{Lease, TakeOver};
use crate::upgrade::act::Vms;
use crate::upgrade::context::StepContext;
use crate::upgrade::plan::PlannedNode;
use crate::upgrade::tests::command::{deployment, end, entries, give};
use crate::upgrade::tests::failing::{before, turns, world};
use crate::upgrade::tests::fake::{Ill, World, data, disk, old_vm, stamp};
use crate::upgrade::{Action, Mode, Outcome, Progress, Request, Step};

/// Before the new VM of the only node is powered on.
async fn before_power_on() -> World {
    before(1, Step::of(Action::PowerOn, 0)).await
}

#[tokio::test(start_paused = true)]
async fn running_replacement_blocks_power_on() {
    for power in [PowerState::On, PowerState::Off] {
        let world = before_power_on().await;
        world.add_own("again", Uuid::from_u128(0x57), |machine| {
            machine.vm.stamp = stamp("cp1", None);
            machine.vm.power = power;
        });
        give(&world, Request::Resume).await.pauses(&["again (", "[upgrade.vm-state]"]);
        assert_eq!(world.called("power_on"), 0);
        assert!(turns(&world).await.is_empty(), "it is in the way back as well");
        world.lock().machines.pop();
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

/// It was moved, or its stamp was taken away, and the VM that is seen in its place is a copy.
#[tokio::test(start_paused = true)]
async fn same_bios_uuid_elsewhere_blocks_power_on() {
    // It runs; or it could, with the node's disk.
    for runs in [true, false] {
        let world = before_power_on().await;
        world.add_own("moved", world.new_vm("cp1").uuid(), |machine| {
            machine.vm.stamp = None;
            if runs {
                machine.vm.power = PowerState::On;
            } else {
                machine.vm.disks.push(data(disk("cp1")));
            }
        });
        give(&world, Request::Resume).await.pauses(&["moved (", "[upgrade.vm-copied]"]);
        assert_eq!(world.called("power_on"), 0);
        world.lock().machines.pop();
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

/// A replica that backup software keeps.
#[tokio::test(start_paused = true)]
async fn off_replica_without_disk_permits_power_on() {
    let world = before_power_on().await;
    world.add_own("replica", world.new_vm("cp1").uuid(), |machine| (machine.vm.stamp, machine.ours) = (None, false));
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn second_bootable_vm_blocks_shutdown() {
    let world = before(1, Step::of(Action::ShutDown, 0)).await;
    world.add_own("again", Uuid::from_u128(0x57), |machine| machine.vm.stamp = stamp("cp1", None));
    give(&world, Request::Resume).await.pauses(&["a network adapter of again (", "both could come up"]);
    assert_eq!(world.called("shut_down"), 0);
}

#[tokio::test(start_paused = true)]
async fn connected_old_vm_blocks_new_power_on() {
    let world = before_power_on().await;
    world.change_vm(old_vm("cp1"), |machine| machine.vm.adapters[0].connected = true);
    give(&world, Request::Resume).await;
    let turned = turns(&world).await;
    assert!(turned[0].2.contains("a network adapter of cp1 ") && turned[0].2.contains("both could"), "{turned:?}");
}

#[tokio::test(start_paused = true)]
async fn shared_disk_blocks_power_on() {
    let world = before_power_on().await;
    world.change_vm(world.new_vm("cp1").uuid(), |machine| machine.vm.disks.truncate(1));
    world.add_own("stray", Uuid::from_u128(0x57), |machine| machine.vm.disks.push(data(disk("cp1"))));
    give(&world, Request::Resume).await;
    let turned = turns(&world).await;
    assert!(turned[0].2.contains("stray (") && turned[0].2.contains("alone"), "{turned:?}");
}

/// Lets a run act on the only node as it is, and returns the obstacle.
async fn refused(world: &World, act: impl AsyncFnOnce(&StepContext<'_>, &PlannedNode, &Vms) -> super::Taken) -> String {
    let plan = world.plan_of_journal().await;
    let (deployment, node) = (deployment(world, &|_| {}), &plan.nodes[0]);
    let hold = Lease::acquire(world, "a test", TakeOver::FromAnyone, &|_| {}).await.unwrap();
    let run = deployment.context(&hold, None);
    let noted = Progress::of(&plan, &entries(world).await).noted(0);
    let Ok(vms) = Vms::of(node, run.vms().await.unwrap(), noted) else { panic!("no VMs") };
    let refused = act(&run, node, &vms).await;
    assert_eq!(world.called("detach") + world.called("destroy"), 0);
    refused.expect_err("it is refused").to_string()
}

fn of(vm: &Option<Vm>) -> &Vm {
    vm.as_ref().expect("a VM")
}

#[tokio::test(start_paused = true)]
async fn disk_moved_since_its_note_is_not_detached() {
    let world = before(1, Step::of(Action::Fence, 0)).await;
    world.fault(None);
    world.move_disk("cp1");
    let why = refused(&world, async |run, node, vms| run.detach(node, of(&vms.old), &disk("cp1")).await).await;
    assert!(why.contains("has just moved to [datastore2]"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn vm_in_use_is_not_removed() {
    let upgraded = world(1, Mode::Rolling, Ill::Well).await;
    end(&upgraded, Request::Resume).await;
    let new = upgraded.new_vm("cp1").uuid();
    let new_goes = async || refused(&upgraded, async |run, node, vms| run.destroy_new(node, vms).await).await;
    let plan = upgraded.plan_of_journal().await;
    let old_goes = async || refused(&upgraded, async |run, node, vms| run.destroy_old(&plan, node, vms).await).await;
    upgraded.fault(None);
    assert!(new_goes().await.contains("only a VM that is off is removed"));
    upgraded.change_vm(new, |machine| machine.vm.power = PowerState::Off);
    assert!(new_goes().await.contains("data.vmdk, which would go with it"));
    let why = old_goes().await;
    assert!(why.contains("no other VM of cp1 runs with a data disk"), "{why}");
    upgraded.change_vm(new, |machine| machine.vm.disks.truncate(1));
    let why = new_goes().await;
    assert!(why.contains("cp1 does not hold the disk of cp1") && why.contains("stays until it does"), "{why}");
}
