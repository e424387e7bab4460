//! What proves that a VM is gone: it is not enough that vCenter does not show it.

use serde_json::json;

use super::cut::{Cut, CutStore};
use super::upgrade::Cluster;
use super::*;
use crate::hypervisor::{Absence, LastSeen};
use crate::upgrade::{Arrived, Verb};

async fn host_of(client: &vsphere::Client, vm: &Vm) -> vsphere::MoRef {
    client.vm(&vsphere::MoRef::vm(&vm.reference.id)).await.unwrap().host.unwrap()
}

/// Moves a VM that is off to a host that another VM is not on.
async fn leaves_the_host_of(bed: &Bed, vm: &Vm, other: &Vm) {
    let (client, taken) = (bed.client().await, host_of(&bed.client().await, other).await);
    let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
    let hosts = client.look(&cluster, &["host"]).await.unwrap().references_at("host");
    let free = hosts.iter().find(|host| **host != taken).unwrap();
    let name = client.look(free, &["name"]).await.unwrap().text("name").to_owned();
    bed.govc(&["vm.migrate", "-host", &format!("/DC0/host/DC0_C0/{name}"), &format!("/DC0/vm/control/{}", vm.name)]);
}

/// The host that a VM is on is taken out of the inventory.
async fn loses_its_host(bed: &Bed, vm: &Vm) {
    let client = bed.client().await;
    let host = host_of(&client, vm).await;
    let name = client.look(&host, &["name"]).await.unwrap().text("name").to_owned();
    let _: serde_json::Value = bed.ask("POST", "remove-host", json!({ "host": name })).await;
}

#[tokio::test]
async fn a_vm_whose_host_was_removed_is_not_gone_until_its_settings_are() {
    let bed = Bed::start(&[]);
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("w1", &image).await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    let settings = vm.settings.clone().unwrap();
    let seen = LastSeen::At(&settings);
    let words = async |seen| match hypervisor.absence(vm.uuid(), seen).await.unwrap() {
        Absence::Unknown(words) => words,
        Absence::Gone => panic!("it is there"),
    };
    assert!(words(seen).await.contains("vCenter has w1"));
    let other = hypervisor.added("w2", &image).await;
    leaves_the_host_of(&bed, &other, &vm).await;
    loses_its_host(&bed, &vm).await;
    assert_eq!(hypervisor.vms().await.unwrap(), [hypervisor.again(&other).await]);
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap(), []);
    assert!(words(seen).await.contains("is still there: it may run on a host that was removed"));
    assert!(words(LastSeen::Unnoted).await.contains("not noted"));
    assert!(words(LastSeen::At("[nowhere] w1/w1.vmx")).await.contains("no datastore nowhere"));
    std::fs::remove_file(bed.file(&settings)).unwrap();
    assert_eq!(hypervisor.absence(vm.uuid(), seen).await.unwrap(), Absence::Gone);
    // One that cannot be read may be it.
    bed.switch(json!({ "traceless": ["w2"] })).await;
    assert!(words(seen).await.contains("it may be the VM w2"));
}

/// The new VM runs on, and the old one is given neither disk nor power.
#[tokio::test]
async fn a_swap_goes_not_back_while_its_new_vm_may_run_on_a_removed_host() {
    let cluster = Cluster::of(1).await;
    let store = CutStore::at(&cluster.store, Some((20, Cut::Before)));
    assert!(store.given(cluster.give_on(None, &store)).await.is_none());
    let vms = cluster.hypervisor.vms().await.unwrap();
    let new = vms.iter().find(|vm| vm.stamp.as_ref().unwrap().swap.is_some()).unwrap();
    assert_eq!(new.power, crate::hypervisor::PowerState::On, "{vms:#?}");
    let old = vms.iter().find(|vm| vm.name == "cp1").unwrap();
    leaves_the_host_of(&cluster.bed, old, new).await;
    loses_its_host(&cluster.bed, new).await;
    let paused = cluster.give(Some(Verb::Rollback)).await.unwrap();
    let Arrived::Paused(why) = paused else { panic!("{paused:?}") };
    assert_eq!(why.code, "upgrade.vm-gone", "{why:?}");
    let old = cluster.bed.machine("cp1").await.unwrap();
    assert_eq!((old.power.as_str(), old.disks.len()), ("poweredOff", 1));
    assert!(why.words.contains("it may run"), "{why:?}");
}

#[tokio::test]
async fn a_cluster_is_not_gone_while_a_vm_of_it_may_run_on_a_removed_host() {
    let world = super::cluster::World::of(1).await;
    let deployed = world.give(crate::deploy::Wish::Deploy(&world.wanted)).await.unwrap();
    assert!(matches!(deployed, crate::deploy::Arrived::Up(_)), "{deployed:?}");
    let vm = world.hypervisor.vms().await.unwrap().remove(0);
    loses_its_host(&world.bed, &vm).await;
    let stopped = world.give(super::cluster::REMOVE).await.unwrap();
    let crate::deploy::Arrived::Stopped(waits) = stopped else { panic!("{stopped:?}") };
    assert!(waits.iter().any(|wait| wait.reason.words.contains("is still there: it may run")), "{waits:?}");
    std::fs::remove_file(world.bed.file(vm.settings.as_ref().unwrap())).unwrap();
    assert_eq!(world.give(super::cluster::REMOVE).await.unwrap(), crate::deploy::Arrived::Gone);
}
