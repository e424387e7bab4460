//! Copies of data disks by their files.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::hypervisor::DiskRef;

const MARK: &str = "before-1a2b3c4d";
/// The node of the disk's VM.
const NODES: [&str; 1] = ["cp1"];

/// A VM and its detached data disk.
async fn detached(hypervisor: &VcenterHypervisor, node: &str) -> (Vm, DiskRef) {
    let image = hypervisor.lay(&ova()).await;
    let vm = hypervisor.added(node, &image).await;
    let disk = hypervisor.detached(&vm).await;
    (hypervisor.again(&vm).await, disk)
}

#[tokio::test]
async fn copy_is_next_to_its_disk_and_deletable() {
    let (bed, hypervisor) = started().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    let none = Few(AtomicUsize::new(0));
    assert_eq!(hypervisor.copy_disk(&disk, MARK, &NODES, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert!(!bed.file(&disk.beside(MARK)).exists());
    let copy = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
    assert_eq!(copy.path, hypervisor.copy_path(&disk, MARK));
    assert!(copy.uuid != disk.uuid && hypervisor.has_disk(&copy).await.unwrap());
    assert_eq!((bed.count("CopyVirtualDisk_Task").await, bed.count("DeleteVirtualDisk_Task").await), (1, 0));
    // The node continues with its own disk.
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
async fn incomplete_copy_is_replaced_unless_held() {
    let (bed, hypervisor) = started().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    let copies = async || bed.count("CopyVirtualDisk_Task").await;
    // The answer is lost during the copy.
    bed.delay_unanswered("CopyVirtualDisk_Task", 500).await;
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
    // An operator has attached it to a VM.
    successor.attach(&vm, &copy, &Free).await.unwrap();
    let held = successor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Refused, "{held}");
    assert!(successor.has_disk(&copy).await.unwrap());
}

#[tokio::test]
async fn copy_without_room_may_be_tried_again() {
    let (bed, hypervisor) = started().await;
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
async fn copy_that_would_not_fit_is_not_requested() {
    let (bed, hypervisor) = started().await;
    let (_vm, disk) = detached(&hypervisor, "cp1").await;
    bed.switch(json!({ "most_free": 63 << 20 })).await;
    let full = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap_err();
    for part in ["takes 64 MiB, the disk's provisioned size", "LocalDS_0 has 63 MiB free"] {
        says(&full, ErrorKind::Transient, part);
    }
    assert_eq!(bed.count("CopyVirtualDisk_Task").await, 0);
    bed.switch(json!({ "most_free": 64 << 20 })).await;
    hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
}

/// Its server makes it thin, unless it is configured otherwise.
#[tokio::test]
async fn size_of_copy_on_nfs_is_not_checked() {
    for kind in ["NFS", "NFS41"] {
        let (bed, hypervisor) = started().await;
        let (_vm, disk) = detached(&hypervisor, "cp1").await;
        bed.switch(json!({ "most_free": 63 << 20, "datastore_type": kind })).await;
        hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
        assert_eq!(bed.count("CopyVirtualDisk_Task").await, 1, "{kind}");
    }
}

/// Whether vCenter does that is not documented.
#[tokio::test]
async fn copy_with_its_disks_uuid_stays_while_held() {
    let (bed, hypervisor) = started().await;
    let (vm, disk) = detached(&hypervisor, "cp1").await;
    bed.switch(json!({ "copies_keep_uuid": true })).await;
    let copy = hypervisor.copy_disk(&disk, MARK, &NODES, &Free).await.unwrap();
    assert_eq!((copy.uuid, &*copy.path), (disk.uuid, &*disk.beside(MARK)));
    hypervisor.attach(&vm, &disk, &Free).await.unwrap();
    let held = hypervisor.delete_disk(&copy, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Refused, "{held}");
    assert!(bed.file(&copy.path).exists() && bed.file(&disk.path).exists());
}

/// A copy of a terabyte takes a day.
#[tokio::test]
async fn running_copy_does_not_delay_other_deployments() {
    let bed = Bed::start(&[]);
    let (hypervisor, client) = (bed.hypervisor().await, bed.client().await);
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let (_vm, disk) = detached(&hypervisor, "cp1").await;
    // It ends when it is cancelled.
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
