//! The proof that a VM is gone: a VM that vCenter does not show may still run.

use serde_json::json;

use super::cluster::{REMOVE, World};
use super::cut::CutStore;
use super::upgrade::Cluster;
use super::*;
use crate::control_plane;
use crate::hypervisor::{Absence, DiskRef, ErrorKind, LastSeen};
use crate::lease::Store as _;
use crate::upgrade::{Outcome, Request, RunOutcome};

async fn host_of(client: &vsphere::Client, vm: &Vm) -> vsphere::MoRef {
    client.vm(&vsphere::MoRef::vm(&vm.reference.id)).await.unwrap().host.unwrap()
}

/// Moves a VM that is off to another host than that of `other`.
async fn leaves_the_host_of(bed: &Bed, vm: &Vm, other: &Vm) {
    let (client, taken) = (bed.client().await, host_of(&bed.client().await, other).await);
    let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
    let hosts = client.look(&cluster, &["host"]).await.unwrap().references_at("host");
    let free = hosts.iter().find(|host| **host != taken).unwrap();
    let name = client.look(free, &["name"]).await.unwrap().text("name").to_owned();
    bed.govc(&["vm.migrate", "-host", &format!("/DC0/host/DC0_C0/{name}"), &format!("/DC0/vm/control/{}", vm.name)]);
}

/// Removes a VM's host from the inventory.
async fn loses_its_host(bed: &Bed, vm: &Vm) {
    let client = bed.client().await;
    let host = host_of(&client, vm).await;
    let name = client.look(&host, &["name"]).await.unwrap().text("name").to_owned();
    let _: serde_json::Value = bed.ask("POST", "remove-host", json!({ "host": name })).await;
}

#[tokio::test]
async fn vm_of_removed_host_exists_with_its_settings() {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.started("w1", &image).await;
    let settings = vm.settings.clone().unwrap();
    let file = DiskRef { uuid: vm.uuid(), path: settings.clone() };
    let datastore = hypervisor.disk_datastore(&file).await.unwrap().unwrap();
    let seen = LastSeen::At(&settings, Some(&datastore));
    let words = async |seen| match hypervisor.absence(vm.uuid(), &["w1"], seen).await.unwrap() {
        Absence::Unknown(words) => words,
        Absence::Gone => panic!("it is there"),
    };
    assert!(words(seen).await.contains("vCenter has w1"));
    let other = hypervisor.added("w2", &image).await;
    leaves_the_host_of(&bed, &other, &vm).await;
    loses_its_host(&bed, &vm).await;
    assert_eq!(hypervisor.vms().await.unwrap(), [hypervisor.again(&other).await]);
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap(), []);
    let still = words(seen).await;
    assert!(still.contains("exists: the VM may run on a host that was removed"), "{still}");
    assert!(words(LastSeen::Unnoted).await.contains("the place of its files was not recorded"));
    let another = LastSeen::At("[LocalDS_0] elsewhere/w1.vmx", Some("datastore-none"));
    assert!(words(another).await.contains("no longer has the datastore LocalDS_0"), "another one has its name");
    assert!(words(LastSeen::At(&settings, None)).await.contains("was not recorded"));
    // Under another BIOS UUID, which vCenter sets after the answer "I copied it".
    let registered = LastSeen::At(other.settings.as_deref().unwrap(), Some(&datastore));
    let registered = hypervisor.absence(Uuid::from_u128(0xc0), &["w1"], registered).await.unwrap();
    assert!(
        matches!(&registered, Absence::Unknown(why) if why.contains("the VM w2 is registered with")),
        "{registered:?}"
    );
    // Its host created it at power-on.
    let lock = bed.file(&format!("{settings}.lck"));
    std::fs::rename(bed.file(&settings), bed.file(&format!("{settings}.away"))).unwrap();
    assert!(words(seen).await.contains("w1.vmx.lck exists"));
    std::fs::remove_file(lock).unwrap();
    // None of these answers says anything about the file.
    for fault in ["ManagedObjectNotFound", "NoPermission", "FileNotFound"] {
        bed.spoil("SearchDatastore_Task", "fault", json!({ "fault": fault })).await;
        let why = words(seen).await;
        assert!(why.contains(fault) && why.contains("create the directory"), "{why}");
        bed.spoil_nothing().await;
    }
    // The same search may succeed later.
    bed.spoil("SearchDatastore_Task", "fault", json!({ "fault": "CannotAccessFile" })).await;
    assert_eq!(hypervisor.absence(vm.uuid(), &["w1"], seen).await.unwrap_err().kind, ErrorKind::Transient);
    bed.spoil_nothing().await;
    assert_eq!(hypervisor.absence(vm.uuid(), &["w1"], seen).await.unwrap(), Absence::Gone);
    // The directory of a renamed datastore is found by the noted identifier.
    std::fs::rename(bed.file(&format!("{settings}.away")), bed.file(&settings)).unwrap();
    let (name, _) = settings.trim_start_matches('[').split_once(']').unwrap();
    bed.rename(&format!("DC0/datastore/{name}"), "renamed").await;
    assert!(words(seen).await.contains("[renamed] w1/w1.vmx exists"));
}

#[tokio::test]
async fn operator_confirms_the_absence_of_one_vm() {
    let (bed, hypervisor, ova) = with_ova().await;
    hypervisor.lay(&ova).await;
    let [one, other] = [1, 2].map(Uuid::from_u128);
    let seen = LastSeen::At("[scrapped] w1/w1.vmx", Some("datastore-none"));
    let absence = async |uuid| hypervisor.absence(uuid, &["w1"], seen).await.unwrap();
    let Absence::Unknown(why) = absence(one).await else { panic!("nothing proves that it is gone") };
    let (_, word) = why.split_once("create the directory ").unwrap();
    std::fs::create_dir(bed.file(word)).unwrap();
    assert_eq!(absence(one).await, Absence::Gone);
    assert_ne!(absence(other).await, Absence::Gone);
}

#[tokio::test]
async fn unread_vm_counts_only_for_its_own_node() {
    let (bed, hypervisor, image) = with_image().await;
    hypervisor.added("w1", &image).await;
    hypervisor.added("w2", &image).await;
    let unread = async |node: &str| hypervisor.unread(&[node]).await.unwrap().unwrap_or_default();
    assert_eq!(unread("w2").await, "");
    bed.switch(json!({ "inaccessible": ["w2"] })).await;
    assert_eq!(unread("w1").await, "", "it shows the files of another VM");
    assert!(unread("w2").await.contains("it may be the VM w2"));
    let seen = LastSeen::At("[LocalDS_0] w2/w2.vmx", None);
    let Absence::Unknown(why) = hypervisor.absence(Uuid::from_u128(1), &["other"], seen).await.unwrap() else {
        panic!("a file of it is in the directory");
    };
    assert!(why.contains("it may be the VM w2"), "{why}");
    bed.rename("DC0/vm/control/w2", "renamed").await;
    bed.switch(json!({ "inaccessible": ["renamed"] })).await;
    assert!(unread("w2").await.contains("it may be the VM renamed"), "its files are called so");
    bed.switch(json!({ "traceless": ["renamed"] })).await;
    assert!(unread("w1").await.contains("it may be the VM renamed"), "nothing of it is shown");
}

/// Runs a command while a VM cannot be read: the command waits, and ends once the VM can be read.
async fn waits_for(cluster: &Cluster, hidden: &str, verb: Request) -> RunOutcome {
    cluster.bed.switch(json!({ "inaccessible": [hidden] })).await;
    let before = cluster.bed.machine(hidden).await.unwrap();
    let store = CutStore::at(&cluster.store, None);
    let mut given = std::pin::pin!(cluster.give_on(Some(verb), &store));
    let looks = async {
        cluster.bed.count_anew().await;
        while cluster.bed.count("FindAllByUuid").await < 12 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = &mut given => panic!("{hidden} counts as gone: {ended:?}"),
        () = looks => {}
    }
    assert_eq!(cluster.bed.machine(hidden).await.unwrap(), before);
    cluster.bed.switch(json!({ "inaccessible": [] })).await;
    given.await.unwrap()
}

#[tokio::test]
async fn swap_waits_for_an_unread_old_vm() {
    for entry in [12, 14] {
        let cluster = Cluster::of(1).await;
        cluster.killed_before(entry).await;
        assert_eq!(waits_for(&cluster, "cp1", Request::Resume).await, RunOutcome::Ended(Outcome::Upgraded), "{entry}");
        assert_eq!(waits_for(&cluster, "cp1", Request::Commit).await, RunOutcome::Ended(Outcome::Committed), "{entry}");
        cluster.runs(true, 1).await;
    }
    for entry in [14, 16, 20] {
        let cluster = Cluster::of(1).await;
        cluster.killed_before(entry).await;
        let ended = waits_for(&cluster, "cp1", Request::Rollback).await;
        assert_eq!(ended, RunOutcome::Ended(Outcome::RolledBack), "{entry}");
        cluster.runs(false, 1).await;
    }
}

#[tokio::test]
async fn abandon_names_unread_possible_holder_of_disk() {
    for (entry, is_new) in [(14, false), (18, true)] {
        let cluster = Cluster::of(1).await;
        cluster.killed_before(entry).await;
        let vms = cluster.hypervisor.vms().await.unwrap();
        let hidden = vms.iter().find(|vm| vm.stamp.as_ref().unwrap().swap.is_some() == is_new).unwrap();
        cluster.bed.switch(json!({ "inaccessible": [hidden.name] })).await;
        assert_eq!(cluster.give(Some(Request::Abandon)).await.unwrap(), RunOutcome::Ended(Outcome::Abandoned));
        let last = cluster.store.numbers().await.unwrap().into_iter().max().unwrap();
        let mut journal = String::new();
        for file in cluster.store.files(last).await.unwrap() {
            journal += &cluster.store.read(last, &file).await.unwrap().unwrap();
        }
        let named = format!("it may be the VM {}", hidden.name);
        assert!(journal.contains(&named) && !journal.contains("no VM holds its disk"), "{journal}");
    }
}

/// The new VM keeps running, and the old one gets neither disk nor power.
#[tokio::test]
async fn rollback_waits_for_new_vm_on_removed_host() {
    let cluster = Cluster::of(1).await;
    cluster.killed_before(20).await;
    let vms = cluster.hypervisor.vms().await.unwrap();
    let new = vms.iter().find(|vm| vm.stamp.as_ref().unwrap().swap.is_some()).unwrap();
    assert_eq!(new.power, crate::hypervisor::PowerState::On, "{vms:#?}");
    let old = vms.iter().find(|vm| vm.name == "cp1").unwrap();
    leaves_the_host_of(&cluster.bed, old, new).await;
    loses_its_host(&cluster.bed, new).await;
    let paused = cluster.give(Some(Request::Rollback)).await.unwrap();
    let RunOutcome::Paused(why) = paused else { panic!("{paused:?}") };
    assert_eq!(why.code, "upgrade.vm-gone", "{why:?}");
    let old = cluster.bed.machine("cp1").await.unwrap();
    assert_eq!((old.power.as_str(), old.disks.len()), ("poweredOff", 1));
    assert!(why.words.contains("it may run"), "{why:?}");
}

#[tokio::test]
async fn destroy_waits_for_vm_on_removed_host() {
    let world = World::of(1).await;
    world.deploys().await;
    let vm = world.hypervisor.vms().await.unwrap().remove(0);
    loses_its_host(&world.bed, &vm).await;
    let waits = world.stops(REMOVE).await;
    assert!(waits.iter().any(|wait| wait.reason.words.contains("exists: the VM may run")), "{waits:?}");
    let settings = world.bed.file(vm.settings.as_ref().unwrap());
    std::fs::remove_file(&settings).unwrap();
    std::fs::remove_file(settings.with_extension("vmx.lck")).unwrap();
    assert_eq!(world.give(REMOVE).await.unwrap(), control_plane::RunOutcome::Gone);
}

/// With one node, nothing else would report that the node is lost, or request another VM.
#[tokio::test]
async fn an_unread_node_is_not_lost() {
    let world = World::of(1).await;
    world.deploys().await;
    world.bed.switch(json!({ "inaccessible": ["cp1"] })).await;
    let paused = world.give(control_plane::Goal::Deploy(&world.wanted)).await.unwrap();
    let control_plane::RunOutcome::Paused(waits) = paused else { panic!("{paused:?}") };
    assert!(waits[0].reason.words.contains("it may be the VM cp1"), "{waits:?}");
    world.bed.switch(json!({ "inaccessible": [] })).await;
    world.deploys().await;
}

/// A cluster whose record has no places of VMs.
async fn without_places() -> World {
    let world = World::of(1).await;
    world.deploys().await;
    let note = crate::journals::deployment::last(&world.store).await.unwrap().unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(&note.text).unwrap();
    assert!(kept.as_object_mut().unwrap().remove("places").is_some());
    world.store.write(note.hold, &note.file, &kept.to_string()).await.unwrap();
    world
}

#[tokio::test]
async fn vm_without_noted_place_needs_the_operators_word() {
    let world = without_places().await;
    let vm = world.hypervisor.vms().await.unwrap().remove(0);
    loses_its_host(&world.bed, &vm).await;
    let waits = world.stops(REMOVE).await;
    let words = &waits.iter().find(|wait| wait.reason.words.contains("was not recorded")).unwrap().reason.words;
    let (_, word) = words.split_once("create the directory ").unwrap();
    std::fs::create_dir(world.bed.file(word)).unwrap();
    assert_eq!(world.give(REMOVE).await.unwrap(), control_plane::RunOutcome::Gone);
}

#[tokio::test]
async fn destroy_without_noted_settings_waits_for_unread_vm() {
    let world = without_places().await;
    world.bed.switch(json!({ "inaccessible": ["cp1"] })).await;
    let waits = world.stops(REMOVE).await;
    assert!(waits.iter().any(|wait| wait.reason.words.contains("it may be the VM cp1")), "{waits:?}");
    world.bed.switch(json!({ "inaccessible": [] })).await;
    assert_eq!(world.give(REMOVE).await.unwrap(), control_plane::RunOutcome::Gone);
}
