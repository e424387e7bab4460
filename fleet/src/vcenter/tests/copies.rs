//! Copies of data disks by their files.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::hypervisor::DiskRef;

const MARK: &str = "before-1a2b3c4d";
/// Of whose VM the disk is.
const NODES: [&str; 1] = ["cp1"];

/// A VM and its data disk, which was taken from it.
async fn detached(hypervisor: &VcenterHypervisor, node: &str) -> (Vm, DiskRef) {
    let image = hypervisor.lay(&ova()).await;
    let vm = hypervisor.added(node, &image).await;
    let disk = vm.data_disks().next().unwrap().reference.clone();
    hypervisor.detach(&vm, &disk, &Free).await.unwrap();
    (hypervisor.again(&vm).await, disk)
}

#[tokio::test]
async fn a_copy_lies_beside_its_disk_and_is_removed_as_a_disk_of_its_own() {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    let none = Few(AtomicUsize::new(0));
    assert_eq!(hypervisor.copy_disk(&disk, MARK, &NODES, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert!(!bed.file(&disk.beside(MARK)).exists());
    let copy = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
    assert_eq!(copy.path, hypervisor.copy_path(&disk, MARK));
    assert!(copy.uuid != disk.uuid && hypervisor.has_disk(&copy).await.unwrap());
    assert_eq!((bed.count("CopyVirtualDisk_Task").await, bed.count("DeleteVirtualDisk_Task").await), (1, 0));
    // The node goes on with its own.
    hypervisor.attach(&vm, &disk, &Free).await.unwrap();
    hypervisor.power_on(&hypervisor.again(&vm).await, &Free).await.unwrap();
    let held = hypervisor.copy_disk(&disk, "before-5e6f7a8b", &NODES, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Refused, "{held}");
    let other = DiskRef { uuid: Uuid::from_u128(0xd15c), ..copy.clone() };
    assert_eq!(hypervisor.delete_disk(&other, &Free).await.unwrap_err().kind, ErrorKind::NotFound);
    hypervisor.delete_disk(&copy, &Free).await.unwrap();
    assert!(!bed.file(&copy.path).exists() && bed.file(&disk.path).exists());
}

#[tokio::test]
async fn half_of_a_copy_is_made_anew_unless_somebody_has_it() {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    let copies = async || bed.count("CopyVirtualDisk_Task").await;
    // The answer is lost while it is made.
    bed.spoil("CopyVirtualDisk_Task", "delay-task", json!({ "milliseconds": 500 })).await;
    bed.spoil("CopyVirtualDisk_Task", "lose-answer", json!({})).await;
    assert_eq!(hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    bed.spoil_nothing().await;
    let successor = bed.hypervisor().await;
    while !bed.file(&disk.beside(MARK)).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = copies().await;
    let copy = successor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
    assert_eq!((copies().await, bed.count("DeleteVirtualDisk_Task").await), (asked + 1, 1));
    assert!(successor.has_disk(&copy).await.unwrap() && successor.has_disk(&disk).await.unwrap());
    // A person has put it into a VM.
    successor.attach(&vm, &copy, &Free).await.unwrap();
    let held = successor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Refused, "{held}");
    assert!(successor.has_disk(&copy).await.unwrap());
}

#[tokio::test]
async fn a_copy_that_there_is_no_room_for_may_be_tried_again() {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    let (_vm, disk) = detached(&hypervisor, "cp1").await;
    bed.spoil("CopyVirtualDisk_Task", "fail-task", json!({ "fault": "NoDiskSpace" })).await;
    let full = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err();
    assert_eq!(full.kind, ErrorKind::Transient, "{full}");
    assert!(full.to_string().starts_with("its provisioned size is 64 MiB: "), "{full}");
    assert!(hypervisor.has_disk(&disk).await.unwrap());
    hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
}

/// vCenter would begin it all the same, and fill the datastore.
#[tokio::test]
async fn a_copy_that_would_not_fit_is_not_asked_for() {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    let (_vm, disk) = detached(&hypervisor, "cp1").await;
    bed.switch(json!({ "most_free": 63 << 20 })).await;
    let full = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err();
    assert_eq!(full.kind, ErrorKind::Transient, "{full}");
    for part in ["takes 64 MiB, the disk's provisioned size", "LocalDS_0 has 63 MiB free"] {
        assert!(full.to_string().contains(part), "{part}: {full}");
    }
    assert_eq!(bed.count("CopyVirtualDisk_Task").await, 0);
    bed.switch(json!({ "most_free": 64 << 20 })).await;
    hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
}

/// Its server makes it thin, unless it was told otherwise.
#[tokio::test]
async fn how_much_a_copy_takes_on_nfs_is_left_to_its_server() {
    for kind in ["NFS", "NFS41"] {
        let bed = Bed::start(&[]);
        let hypervisor = bed.hypervisor().await;
        let (_vm, disk) = detached(&hypervisor, "cp1").await;
        bed.switch(json!({ "most_free": 63 << 20, "datastore_type": kind })).await;
        hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
        assert_eq!(bed.count("CopyVirtualDisk_Task").await, 1, "{kind}");
    }
}

/// Whether vCenter does that is not documented.
#[tokio::test]
async fn a_copy_that_has_the_uuid_of_its_disk_is_made_and_not_removed_while_a_vm_has_that() {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    bed.switch(json!({ "copies_keep_uuid": true })).await;
    let copy = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
    assert_eq!((copy.uuid, &*copy.path), (disk.uuid, &*disk.beside(MARK)));
    hypervisor.attach(&vm, &disk, &Free).await.unwrap();
    let held = hypervisor.delete_disk(&copy, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Refused, "{held}");
    assert!(bed.file(&copy.path).exists() && bed.file(&disk.path).exists());
}

/// One of a terabyte takes a day.
#[tokio::test]
async fn a_copy_that_goes_on_holds_up_no_other_deployment_of_its_account() {
    let bed = Bed::start(&[]);
    let (hypervisor, client) = (bed.hypervisor().await, bed.client().await);
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let (_vm, disk) = detached(&hypervisor, "cp1").await;
    // It ends when it is told to.
    bed.spoil("CopyVirtualDisk_Task", "delay-task", json!({ "milliseconds": 120_000 })).await;
    let meanwhile = async {
        let is_copied = |task: &vsphere::Running| task.what.ends_with("copyVirtualDisk");
        while !client.running_anywhere().await.unwrap().iter().any(is_copied) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.settle(&Free).await.unwrap();
        assert!(client.running_anywhere().await.unwrap().iter().any(is_copied), "it still goes on");
        bed.spoil_nothing().await;
    };
    let (copied, ()) = tokio::join!(hypervisor.copy_disk(&disk, MARK, &NODES, &Free), meanwhile);
    assert!(hypervisor.has_disk(&copied.unwrap()).await.unwrap());
}
