//! VMs whose settings vCenter does not show, and clones made in vSphere Client: a blocker of a swap is found before a
//! node is off.

use serde_json::json;
use vsphere::MoRef;

use super::others::{by_hand, full_clone};
use super::upgrade::Cluster;
use super::*;
use crate::upgrade::{Outcome, Request, RunOutcome};

/// A user clones a foreign VM into the folder: it takes until the faults are cleared.
async fn begins_a_clone(bed: &Bed, ova: &Ova) -> tokio::task::JoinHandle<vsphere::Result<MoRef>> {
    let client = bed.client().await;
    let source = by_hand(&client, ova, "theirs", "control").await;
    bed.spoil("CloneVM_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    let cloning = tokio::spawn(async move { full_clone(&client, &source, "control/half", None).await });
    while bed.machine("half").await.is_none() {
        tokio::task::yield_now().await;
    }
    cloning
}

/// A disk that no VM holds, in the former directory of the VM.
async fn made_free(cluster: &Cluster) -> crate::hypervisor::DiskRef {
    let client = cluster.bed.client().await;
    let made = by_hand(&client, &ova(), "free", "control").await;
    let vm = cluster.hypervisor.seen(&made).await;
    cluster.hypervisor.stamp(&vm, &stamp("free", None), &Free).await.unwrap();
    cluster.hypervisor.left_by(&vm).await
}

async fn clones(bed: &Bed, machine: &str, to: &str) {
    let _: serde_json::Value = bed.ask("POST", "client-clone", json!({ "machine": machine, "to": to })).await;
}

#[tokio::test]
async fn running_clone_stops_no_look_or_swap() {
    let cluster = Cluster::of(1).await;
    let theirs = ova();
    let cloning = begins_a_clone(&cluster.bed, &theirs).await;
    assert_eq!(cluster.hypervisor.vms().await.unwrap().len(), 1);
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
    assert_eq!(cluster.give(Some(Request::Rollback)).await.unwrap(), RunOutcome::Ended(Outcome::RolledBack));
    assert!(!cloning.is_finished(), "it was cloned all the time");
    cluster.bed.spoil_nothing().await;
    cloning.await.unwrap().unwrap();
}

#[tokio::test]
async fn unread_foreign_vm_permits_swap_but_no_deletion() {
    let cluster = Cluster::of(1).await;
    let client = cluster.bed.client().await;
    by_hand(&client, &ova(), "lost", "control").await;
    // Its files are shown, and vCenter's last list does not contain the disk.
    cluster.bed.switch(json!({ "inaccessible": ["lost"] })).await;
    let [vm] = <[Vm; 1]>::try_from(cluster.hypervisor.vms().await.unwrap()).unwrap();
    cluster.hypervisor.is_sole_holder(&vm).await.unwrap();
    let disk = vm.data_disks().next().unwrap().reference.clone();
    let free = made_free(&cluster).await;
    for switches in [json!({ "traceless": [] }), json!({ "traceless": ["lost"] })] {
        cluster.bed.switch(switches).await;
        cluster.hypervisor.is_sole_holder(&vm).await.unwrap();
        let error = cluster.hypervisor.delete_disk(&free, &Free).await.unwrap_err();
        says(&error, ErrorKind::Transient, "whether the VM lost holds the disk");
    }
    // The lock on the disk's file shows the holder.
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.bed.switch(json!({ "traceless": [], "inaccessible": [] })).await;
    cluster.runs(true, 2).await;
    cluster.hypervisor.delete_disk(&free, &Free).await.unwrap();
    assert!(cluster.hypervisor.has_disk(&disk).await.unwrap());
}

#[tokio::test]
async fn clone_with_the_disk_prevents_power_off() {
    let cluster = Cluster::of(1).await;
    clones(&cluster.bed, "cp1", "cp1-backup").await;
    let refused = format!("{:#}", cluster.give(None).await.unwrap_err());
    assert!(refused.contains("upgrade.disk-held") && refused.contains("cp1-backup holds"), "{refused}");
    cluster.bed.govc(&["vm.destroy", "/DC0/vm/control/cp1-backup"]);
    // The same for a clone after the plan: the command ends before it notes the shutdown.
    cluster.killed_before(10).await;
    clones(&cluster.bed, "cp1", "cp1-backup").await;
    let paused = cluster.give(Some(Request::Resume)).await.unwrap();
    let RunOutcome::Paused(why) = paused else { panic!("{paused:?}") };
    assert_eq!(why.code, "upgrade.disk-held", "{why:?}");
    assert_eq!(cluster.bed.machine("cp1").await.unwrap().power, "poweredOn");
    cluster.bed.govc(&["vm.destroy", "/DC0/vm/control/cp1-backup"]);
    assert_eq!(cluster.give(Some(Request::Resume)).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
}

/// It was made once the node was off: no file is held, and neither direction is blocked.
#[tokio::test]
async fn copy_of_a_disk_is_no_holder() {
    for cluster in [Cluster::of(1).await, Cluster::of(1).await.copying()] {
        cluster.killed_before(12).await;
        assert_eq!(cluster.bed.machine("cp1").await.unwrap().power, "poweredOff");
        clones(&cluster.bed, "cp1", "cp1-backup").await;
        assert_eq!(cluster.give(Some(Request::Resume)).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
        assert_eq!(cluster.give(Some(Request::Rollback)).await.unwrap(), RunOutcome::Ended(Outcome::RolledBack));
        let backup = cluster.bed.machine("cp1-backup").await.unwrap();
        assert_eq!((backup.power.as_str(), backup.disks.len()), ("poweredOff", 2));
    }
}
