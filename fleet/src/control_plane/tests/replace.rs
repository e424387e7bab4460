//! Finding 5 of controller.md: a lost control-plane node gets another VM, whatever happens on the way.

use uuid::Uuid;

use super::fake::{Does, Fault, Given, World, wanted};
use crate::control_plane::{DesiredState, Goal, RunOutcome, records};
use crate::hypervisor::{Adapter, PowerState};

/// A cluster of three nodes. The places of their VMs are recorded, and its others answer without a lost one.
async fn world() -> World {
    let world = World::with(3).await;
    {
        let mut state = world.lock();
        state.speaks_alone = true;
        for name in ["cp1", "cp2", "cp3"] {
            let vm = &mut state.named(name).vm;
            vm.settings = Some(format!("[ds] {name}/{name}.vmx"));
            let adapter = Adapter { key: "1".to_owned(), network: "n".to_owned(), mac: String::new(), connected: true };
            vm.adapters = vec![adapter];
        }
    }
    world.give(Goal::Continue).await.up();
    world
}

/// A host has failed with the disks of the second node, and was removed.
async fn gone() -> World {
    let world = world().await;
    lose(&world, "cp2");
    world
}

fn lose(world: &World, name: &str) {
    let mut state = world.lock();
    let lost = state.named(name).vm.clone();
    state.machines.retain(|machine| machine.vm.reference != lost.reference);
    for disk in &lost.disks {
        state.disks.remove(&disk.reference.uuid);
    }
}

fn replacing(wanted: &DesiredState) -> Goal<'_> {
    Goal::Replace { wanted, node: "cp2", host_is_off: None, retries: false }
}

async fn replace(world: &World) -> Given {
    world.give_over(replacing(&wanted(3))).await
}

/// The second node runs in a new VM, and nothing is left of other ones.
async fn is_replaced(world: &World, told: &str) {
    let kept = records::begun(world, super::fake::DEPLOYMENT).await.unwrap().unwrap();
    assert_eq!(kept.replacement, None, "{told}");
    let own = world.own();
    assert!(own.len() == 3 && own[1].starts_with("cp2-"), "{told}: {own:?}");
    let state = world.lock();
    let new = state.machines.iter().find(|machine| machine.vm.name == own[1]).expect(told);
    let node = kept.node("cp2").expect(told);
    assert_eq!(
        (node.bios_uuid, node.own_disk()),
        (Some(new.vm.uuid()), Some(new.vm.disks[0].reference.uuid)),
        "{told}"
    );
    assert_eq!(new.vm.power, PowerState::On, "{told}");
    let held = |disk: &Uuid| state.machines.iter().any(|machine| machine.vm.disk(*disk).is_some());
    assert!(state.disks.keys().all(held), "{told}: a disk is left over");
}

#[tokio::test(start_paused = true)]
async fn lost_node_gets_another_vm() {
    let world = gone().await;
    let status = replace(&world).await.up();
    assert!(status.done && status.nodes.iter().all(|node| node.ready), "{status:?}");
    is_replaced(&world, "at once").await;
    assert_eq!(world.lock().codes.len(), 1);
    // The next command finds a complete cluster.
    world.give(Goal::Continue).await.up();
    replace(&world).await.fails("cp2 is not proved lost");
}

#[tokio::test(start_paused = true)]
async fn running_or_intact_node_is_not_replaced() {
    let world = world().await;
    replace(&world).await.fails("is on");
    world.lock().named("cp2").vm.power = PowerState::Off;
    replace(&world).await.fails("power it on");
    // Without the VM its disk may be in another one.
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    replace(&world).await.fails("its data disk exists");
    assert_eq!(world.lock().codes.len(), 0);
    let wanted = wanted(3);
    let other = Goal::Replace { wanted: &wanted, node: "cp9", host_is_off: None, retries: false };
    world.give_over(other).await.fails("has no control-plane node cp9");
}

#[tokio::test(start_paused = true)]
async fn vm_off_without_its_disk_is_given_up() {
    let world = world().await;
    {
        let mut state = world.lock();
        let disk = state.named("cp2").vm.disks.remove(0).reference.uuid;
        state.named("cp2").vm.power = PowerState::Off;
        state.disks.remove(&disk);
    }
    replace(&world).await.up();
    is_replaced(&world, "off").await;
    let state = world.lock();
    let former = state.machines.iter().find(|machine| machine.vm.name.starts_with("cp2-replaced-")).expect("it stays");
    assert!(former.vm.is_fenced() && former.vm.power == PowerState::Off);
}

#[tokio::test(start_paused = true)]
async fn returned_vm_of_silent_host_is_shut_out() {
    let world = world().await;
    let lost = world.lock().named("cp2").vm.clone();
    world.lock().named("cp2").vm.power = PowerState::Unknown;
    world.lock().cut_off.insert(lost.reference.id.clone());
    replace(&world).await.fails("confirm that the host esx1 is off");
    let wanted = wanted(3);
    let said =
        |host: &'static str| Goal::Replace { wanted: &wanted, node: "cp2", host_is_off: Some(host), retries: false };
    world.give_over(said("esx9")).await.fails("confirm that the host esx1 is off");
    world.give_over(said("esx1")).await.up();
    assert_eq!(world.own().len(), 4, "its former VM is on a silent host");
    // The host is back, with the former VM.
    world.lock().cut_off.clear();
    world.lock().named("cp2").vm.power = PowerState::On;
    world.give(Goal::Continue).await.up();
    let state = world.lock();
    let former = state.machines.iter().find(|machine| machine.vm.reference == lost.reference).expect("it stays");
    assert!(former.vm.is_fenced() && former.vm.power == PowerState::Off && former.vm.disks == lost.disks);
    drop(state);
    assert_eq!(world.own().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn second_loss_stops_the_replacement() {
    let world = gone().await;
    lose(&world, "cp3");
    let waits = replace(&world).await.stopped();
    assert!(waits.iter().any(|wait| wait.reason.code == "deploy.no-quorum"), "{waits:?}");
    assert_eq!(world.lock().codes.len(), 0, "no member is removed");
}

#[tokio::test(start_paused = true)]
async fn vm_that_never_joins_is_made_three_times() {
    let world = gone().await;
    world.lock().never_joins = true;
    world.lock().removes_used = true;
    let mut uuids = Vec::new();
    for attempt in 1..=3 {
        let waits = replace(&world).await.paused();
        assert!(waits.iter().any(|wait| wait.reason.code == "deploy.joining"), "{waits:?}");
        let open = records::begun(&world, super::fake::DEPLOYMENT).await.unwrap().unwrap().replacement.unwrap();
        assert_eq!(open.attempt, attempt);
        uuids.push(open.allocated_uuid);
        // Its code has expired.
        let (now, then) = (format!("\"admitted\":{}", open.admitted.unwrap()), "\"admitted\":1".to_owned());
        world.rewrite(|text| text.replace(&now, &then));
    }
    let waits = replace(&world).await.stopped();
    assert!(waits.iter().any(|wait| wait.reason.code == "deploy.replacement-blocked"), "{waits:?}");
    assert_eq!((world.own().len(), world.free_disks().len()), (2, 0), "blank VMs go with their disks");
    assert_eq!(world.lock().codes, ["code 0", "code 1", "code 2"]);
    uuids.dedup();
    assert_eq!(uuids.len(), 3, "each VM has its own BIOS UUID");
    // The operator starts again.
    world.lock().never_joins = false;
    let wanted = wanted(3);
    world.give(Goal::Replace { wanted: &wanted, node: "cp2", host_is_off: None, retries: true }).await.up();
    is_replaced(&world, "again").await;
}

async fn point(call: usize, does: (&str, Does), fault: Fault) {
    let told = format!("call {call} {does:?}: {fault:?}");
    let world = gone().await;
    world.lock().removes_used = true;
    world.set_fault(Some((call, fault)));
    drop(replace(&world).await);
    world.set_fault(None);
    match replace(&world).await {
        Given::Arrived(RunOutcome::Up(_), _) => {}
        // The first command has completed it.
        Given::Failed(error) => assert!(error.to_string().contains("is not proved lost"), "{told}: {error:#}"),
        other => panic!("{told}: {other:?}"),
    }
    is_replaced(&world, &told).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_replacement() {
    let world = gone().await;
    world.set_fault(None);
    replace(&world).await.up();
    let calls = world.lock().calls.clone();
    assert!(calls.iter().any(|(name, _)| *name == "admit"), "{calls:?}");
    let mut points = 0;
    for (number, (name, does)) in (1..).zip(calls) {
        for fault in does.faults() {
            point(number, (name, does), *fault).await;
            points += 1;
        }
    }
    println!("{points} points");
}
