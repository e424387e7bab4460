//! The settings that a cluster was begun with, and those with which it continues.

use std::collections::BTreeSet;

use contract::deployer::{Fingerprint, PrivateKey};
use contract::properties::{DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET};
use uuid::Uuid;

use super::fake::{DEPLOYMENT, Fault, World, wanted};
use crate::control_plane::{DesiredState, Goal, RunOutcome, records};
use crate::hypervisor::{DiskRef, PowerState, Vm};

/// A cluster whose VMs get a deployer key.
fn wanted_by(key: &PrivateKey) -> DesiredState {
    let mut wanted = wanted(1);
    let public = key.public().unwrap().to_string();
    wanted.nodes[0].properties.insert(DEPLOYER_PUBLIC_KEY.to_owned(), public);
    DesiredState { digests: key.digests().unwrap(), ..wanted }
}

/// Two operators have each drawn a key, because neither had seen the other's cluster.
#[tokio::test(start_paused = true)]
async fn another_deployer_key_than_recorded_is_refused() {
    let keys = [PrivateKey::draw().unwrap(), PrivateKey::draw().unwrap()];
    let [first, second] = keys.each_ref().map(wanted_by);
    let world = World::new();
    world.lock().refuses = true;
    let (arrived, _) = world.give(Goal::Deploy(&first)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    // Nothing was created with that key: the other one counts from now on.
    world.lock().refuses = false;
    world.lock().ill = true;
    world.give(Goal::Deploy(&second)).await.arrived();
    let noted = records::read(&world).await.unwrap().unwrap().deployer_fingerprint;
    assert_eq!(noted, second.deployer());
    let before = world.lock().machines.clone();
    let refused = world.give(Goal::Deploy(&first)).await.failed();
    for wanted in [&first, &second] {
        assert!(refused.contains(&wanted.deployer().unwrap().to_string()), "{refused}");
    }
    assert_eq!(world.lock().machines, before);
    // The nodes of a formed cluster may have been given another key since.
    world.lock().ill = false;
    for wanted in [&second, &first] {
        world.lock().deployer = wanted.deployer();
        world.give(Goal::Deploy(wanted)).await.up();
        // An admitted key is recorded: no warning follows.
        assert_eq!(records::read(&world).await.unwrap().unwrap().deployer_fingerprint, wanted.deployer());
    }
    // A key that is not admitted is not.
    world.lock().ill = true;
    world.lock().deployer = second.deployer();
    let (arrived, _) = world.give(Goal::Deploy(&second)).await.arrived();
    assert!(!matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert_eq!(records::read(&world).await.unwrap().unwrap().deployer_fingerprint, first.deployer());
}

#[tokio::test(start_paused = true)]
async fn a_continued_cluster_records_the_admitted_key() {
    let world = World::with(1).await;
    let key = Some(Fingerprint::of(b"a key"));
    world.lock().deployer = key;
    world.give(Goal::Continue).await.up();
    assert_eq!(records::read(&world).await.unwrap().unwrap().deployer_fingerprint, key);
}

/// A place in which a command was killed when its VMs were complete and recorded, before one was powered on.
async fn made(nodes: u8) -> World {
    let twin = World::new();
    twin.give(Goal::Deploy(&wanted(nodes))).await.arrived();
    let calls = twin.lock().calls.clone();
    let made = calls.iter().rposition(|call| call.0 == "add.end").unwrap();
    let looks = 1 + made + calls[made..].iter().position(|call| call.0 == "vms").unwrap();
    let world = World::new();
    world.dies((looks, Fault::KilledBefore), world.deploy(nodes)).await;
    assert_eq!(world.own(), (1..=nodes).map(|number| format!("cp{number}")).collect::<Vec<_>>());
    world
}

/// After that the VM may be incomplete: the fakes do not power on such a VM.
#[tokio::test(start_paused = true)]
async fn a_recreated_vm_is_recorded_as_incomplete() {
    let world = made(1).await;
    world.remove_own();
    world.lock().spoils = true;
    world.give_over(Goal::Deploy(&wanted(1))).await.stopped();
    assert_eq!((world.own().len(), world.free_disks().len()), (0, 0));
    world.lock().spoils = false;
    let (arrived, _) = world.give_over(Goal::Deploy(&wanted(1))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
}

/// Whichever disk is detached first or last: none of them is known as the blank one of the VM.
#[tokio::test(start_paused = true)]
async fn two_disks_of_an_incomplete_vm_stay() {
    let twin = World::new();
    twin.give(Goal::Deploy(&wanted(1))).await.arrived();
    let made = 1 + twin.lock().calls.iter().position(|call| call.0 == "add.end").unwrap();
    for is_first in [false, true] {
        let world = World::new();
        // Before it is recorded that the VM is complete.
        world.dies((made + 1, Fault::KilledBefore), world.deploy(1)).await;
        let payroll = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] payroll.vmdk".to_owned() };
        world.hang("cp1", &payroll);
        if is_first {
            let mut state = world.lock();
            let holder = state.machines.iter_mut().find(|machine| machine.vm.disk(payroll.uuid).is_some());
            holder.unwrap().vm.disks.reverse();
        }
        let both: BTreeSet<Uuid> = world.lock().disks.keys().copied().collect();
        let status = world.give_over(Goal::Deploy(&wanted(1))).await.up();
        let left: BTreeSet<Uuid> = status.left.iter().map(|disk| disk.uuid).collect();
        assert_eq!((both.len(), &left, world.free_disks()), (2, &both, both.clone()));
    }
}

/// A VM that runs next to an incomplete one would be taken for newer than the record, and nothing would be done.
#[tokio::test(start_paused = true)]
async fn other_vms_stay_off_while_one_is_recreated() {
    let world = made(3).await;
    let is_gone = |vm: &Vm| vm.stamp.as_ref().is_some_and(|it| it.deployment == DEPLOYMENT && it.node == "cp1");
    {
        let mut state = world.lock();
        state.machines.retain(|machine| !is_gone(&machine.vm));
        (state.restorable, state.spoils) = (true, true);
    }
    let waits = world.give_over(Goal::Deploy(&wanted(3))).await.stopped();
    let codes: Vec<_> = waits.iter().map(|wait| wait.reason.code.as_str()).collect();
    assert_eq!((codes, world.own()), (vec!["deploy.vm-undone"], vec!["cp2".to_owned(), "cp3".to_owned()]));
    assert!(world.lock().machines.iter().all(|machine| machine.vm.power == PowerState::Off));
    world.lock().spoils = false;
    world.give_over(Goal::Deploy(&wanted(3))).await.up();
}

/// A command with all VMs needs no secret, until a VM is gone that was never on.
#[tokio::test(start_paused = true)]
async fn no_vm_is_created_without_the_secret() {
    let mut without = wanted(1);
    without.nodes[0].properties.remove(DEPLOYMENT_SECRET);
    for is_there in [true, false] {
        let world = made(1).await;
        if is_there {
            world.give_over(Goal::Deploy(&without)).await.up();
            continue;
        }
        world.remove_own();
        // Also if the secret was not recorded.
        world.rewrite(|text| {
            let mut kept: serde_json::Value = serde_json::from_str(text).unwrap();
            assert!(kept["nodes"][0].as_object_mut().unwrap().remove("secretHash").is_some());
            kept.to_string()
        });
        world.give_over(Goal::Deploy(&without)).await.fails("the deployment secret is needed");
        assert_eq!(world.own(), [""; 0]);
        world.give_over(Goal::Deploy(&wanted(1))).await.up();
    }
}
