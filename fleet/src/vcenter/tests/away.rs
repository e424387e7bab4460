//! Swaps while a datastore is unreachable, and while objects are renamed.

use serde_json::json;

use super::cut::{Cut, CutStore};
use super::upgrade::Cluster;
use super::*;
use crate::upgrade::{Outcome, Request};

/// A cluster whose VMs are on another datastore than its journal.
async fn elsewhere() -> Cluster {
    Cluster::placed(1, "LocalDS_1").await
}

/// Its paths are down for a while when no VM holds the disk.
#[tokio::test]
async fn swap_waits_for_an_unreachable_datastore() {
    for fault in ["InvalidDatastore", "DatastoreNotWritableOnHost"] {
        let cluster = elsewhere().await;
        let away = async {
            cluster.bed.switch(json!({ "datastores_away": { "LocalDS_1": fault } })).await;
            cluster.bed.count_anew().await;
            // The request was repeated several times.
            while cluster.bed.count("QueryVirtualDiskUuid").await < 5 {
                tokio::task::yield_now().await;
            }
            cluster.bed.switch(json!({ "datastores_away": {} })).await;
        };
        // The entry before the attachment.
        cluster.killed_before(16).await;
        tokio::join!(cluster.ends(Some(Request::Resume), Outcome::Upgraded, fault), away);
        cluster.runs(true, 2).await;
    }
}

/// A disk is found by its datastore's identifier after each rename, at each entry of the journal.
#[tokio::test]
async fn swap_and_rollback_follow_a_renamed_datastore() {
    for entry in [10, 12, 14, 16, 18, 20] {
        let cluster = elsewhere().await;
        cluster.killed_before(entry).await;
        cluster.bed.rename("DC0/datastore/LocalDS_1", "moved").await;
        cluster.ends(Some(Request::Resume), Outcome::Upgraded, entry).await;
        let store = CutStore::at(&cluster.store, Some((entry, Cut::Before)));
        let cut = store.given(cluster.give_on(Some(Request::Rollback), &store)).await;
        cluster.bed.rename("DC0/datastore/moved", "back").await;
        if cut.is_none() {
            cluster.ends(Some(Request::Rollback), Outcome::RolledBack, entry).await;
        }
        cluster.runs(false, 1).await;
    }
}

#[tokio::test]
async fn renamed_network_folder_or_vm_stops_no_swap() {
    for entry in [8, 12, 16, 20] {
        let cluster = elsewhere().await;
        cluster.killed_before(entry).await;
        for (path, to) in
            [("DC0/vm/control/cp1", "renamed"), ("DC0/network/VM Network", "net"), ("DC0/vm/control", "other")]
        {
            cluster.bed.rename(path, to).await;
        }
        cluster.ends(Some(Request::Resume), Outcome::Upgraded, entry).await;
        cluster.ends(Some(Request::Rollback), Outcome::RolledBack, entry).await;
    }
}

/// Other patterns of a datastore's browser than "*" are not documented.
#[tokio::test]
async fn foreign_settings_are_found_with_any_pattern_support() {
    let bed = Bed::start(&[]);
    bed.switch(json!({ "simple_patterns": true })).await;
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let disk = hypervisor.detached(&vm).await;
    bed.govc(&["vm.unregister", "/DC0/vm/control/cp1"]);
    let error = hypervisor.delete_disk(&disk, &Free).await.unwrap_err();
    assert!(error.to_string().contains("cp1.vmx, which is registered with no VM"), "{error}");
    bed.spoil("SearchDatastore_Task", "fault", json!({ "fault": "FileNotFound", "times": -1 })).await;
    let error = hypervisor.delete_disk(&disk, &Free).await.unwrap_err();
    assert!(error.to_string().contains("exists, and vCenter does not list it"), "{error}");
}

#[tokio::test]
async fn manual_drs_spreads_new_vms_and_keeps_replacements() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor().await;
    bed.govc(&["cluster.change", "-drs-enabled=true", "-drs-mode=manual", "DC0_C0"]);
    bed.switch(json!({ "refuses_without_host": true })).await;
    hypervisor.preflight(&Placement::default()).await.unwrap();
    let image = hypervisor.lay(&ova).await;
    hypervisor.started("cp1", &image).await;
    let host_of = async |name: &str| {
        let machine = vsphere::MoRef::vm(&bed.machine(name).await.unwrap().object);
        hypervisor.client.vm(&machine).await.unwrap().host
    };
    let mut hosts = std::collections::BTreeSet::from([host_of("cp1").await]);
    for name in ["cp2", "cp3"] {
        hypervisor.added(name, &image).await;
        hosts.insert(host_of(name).await);
    }
    assert_eq!(hosts.len(), 3);
    for vm in hypervisor.vms().await.unwrap() {
        let new = format!("{}-new", vm.name);
        hypervisor.replaced(&vm, &new, &image).await.unwrap();
        assert_eq!(host_of(&new).await, host_of(&vm.name).await, "{}", vm.name);
    }
}

/// No host has the second network.
#[tokio::test]
async fn manual_drs_chooses_a_host_with_the_networks() {
    const OTHER: &str = "other";
    let (bed, ova) = (Bed::start(&[]), ova());
    bed.govc(&["host.portgroup.add", "-host", "/DC0/host/DC0_C0/127.0.1.1", "-vswitch", "vSwitch0", OTHER]);
    let hypervisor = bed.hypervisor().await;
    let image = hypervisor.lay(&ova).await;
    let add = async |node: &str| {
        hypervisor.try_add_with(node, &image, &[OTHER], &properties(node), &Placement::default()).await
    };
    let vm = hypervisor.of_uuid(add("cp1").await.unwrap()).await;
    bed.govc(&["cluster.change", "-drs-enabled=true", "-drs-mode=manual", "DC0_C0"]);
    hypervisor.added("cp2", &image).await;
    let replaced = hypervisor.replaced(&vm, "cp1-new", &image).await.unwrap_err();
    for error in [replaced, add("cp3").await.unwrap_err()] {
        assert!(error.to_string().contains("no host that takes VMs now has the networks"), "{error}");
    }
}
