//! Concurrent changes by others while a change waits for a slot of its client, or is noted.

use std::time::Duration;

use serde_json::json;
use vsphere::Settings;

use super::*;
use crate::hypervisor::DiskRef;

/// A deployment whose client has few slots.
async fn limited(settings: Settings) -> (Bed, VcenterHypervisor, ImageTemplate) {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor_by(bed.limited(settings).await, DEPLOYMENT, &bed.site()).await;
    let image = hypervisor.lay(&ova()).await;
    (bed, hypervisor, image)
}

#[tokio::test]
async fn disk_attached_while_removal_is_queued_stays() {
    let (bed, hypervisor, image) = limited(Settings { tasks: 1, ..Bed::settings() }).await;
    let [goes, stays] = [hypervisor.added("cp1", &image).await, hypervisor.added("cp2", &image).await];
    let copied = hypervisor.added("cp3", &image).await;
    let mut disks = Vec::new();
    for vm in [&goes, &stays, &copied] {
        disks.push(hypervisor.detached(vm).await);
    }
    let (goes, other) = (hypervisor.again(&goes).await, bed.hypervisor().await);
    bed.count_anew().await;
    bed.spoil("CopyVirtualDisk_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    // A copy has the only slot. A VM and the disk of another one are to be removed, and wait for the slot.
    let going = async {
        bed.reached("CopyVirtualDisk_Task").await;
        tokio::join!(hypervisor.destroy(&goes, &Free), hypervisor.delete_disk(&disks[1], &Free))
    };
    let somebody = async {
        bed.reached("ReconfigVM_Task").await;
        bed.quiet().await;
        assert_eq!((bed.count("Destroy_Task").await, bed.count("DeleteVirtualDisk_Task").await), (0, 0));
        other.attach(&other.again(&goes).await, &disks[0], &Free).await.unwrap();
        other.attach(&other.again(&stays).await, &disks[1], &Free).await.unwrap();
        bed.spoil_nothing().await;
    };
    let (copy, (gone, removed), ()) =
        tokio::join!(hypervisor.copy_disk(&disks[2], "copy", &["cp3"], &Free), going, somebody);
    copy.unwrap();
    says(&gone.unwrap_err(), ErrorKind::Changed, "those would go with it");
    assert_eq!(removed.unwrap_err().kind, ErrorKind::Refused);
    assert!(disks.iter().all(|disk| bed.file(&disk.path).exists()));
    assert_eq!(hypervisor.again(&goes).await.data_disks().count(), 1);
}

/// The user who removes the stamp keeps the VM, as documented.
#[tokio::test]
async fn vm_stays_if_stamp_is_removed_while_queued() {
    let (bed, hypervisor, image) = limited(Settings { tasks: 1, ..Bed::settings() }).await;
    let vm = hypervisor.added("cp1", &image).await;
    hypervisor.detached(&vm).await;
    let (vm, by_hand) = (hypervisor.again(&vm).await, bed.client().await);
    bed.count_anew().await;
    bed.spoil("CloneVM_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    let going = async {
        bed.reached("CloneVM_Task").await;
        hypervisor.destroy(&vm, &Free).await
    };
    let somebody = async {
        bed.reached("ReconfigVM_Task").await;
        bed.quiet().await;
        assert_eq!(bed.count("Destroy_Task").await, 0);
        let other = crate::vcenter::stamp::written(&Stamp {
            deployment: Uuid::from_u128(0xee),
            node: "cp1".to_owned(),
            swap: None,
        });
        let spec = vsphere::ConfigSpec::new().extra("kaas.stamp", &other);
        let at = vsphere::MoRef::vm(&vm.reference.id);
        by_hand.changes(&vsphere::Unguarded).reconfigure(&at, &spec).await.unwrap();
        bed.spoil_nothing().await;
    };
    let (made, gone, ()) = tokio::join!(hypervisor.try_add("cp2", &image), going, somebody);
    made.unwrap();
    says(&gone.unwrap_err(), ErrorKind::Refused, "is not stamped as this deployment's");
    assert_eq!((hypervisor.again(&vm).await.name, bed.count("Destroy_Task").await), ("cp1".to_owned(), 0));
}

/// Permits everything. While that is noted, a user attaches a disk to a VM.
struct Attaching {
    by: VcenterHypervisor,
    to: Vm,
    disk: DiskRef,
}

#[async_trait]
impl Fence for Attaching {
    async fn prepare(&self) -> Result<()> {
        self.by.attach(&self.by.again(&self.to).await, &self.disk, &Free).await
    }

    async fn still(&self) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn disk_attached_while_removal_is_noted_stays() {
    let (bed, hypervisor, vm) = with_vm().await;
    let disk = hypervisor.detached(&vm).await;
    let permit = Attaching { by: bed.hypervisor().await, to: vm, disk: disk.clone() };
    let removed = hypervisor.delete_disk(&disk, &permit).await.unwrap_err();
    assert_eq!(removed.kind, ErrorKind::Refused, "{removed}");
    let vm = hypervisor.again(&permit.to).await;
    assert!(vm.disk(disk.uuid).is_some() && bed.file(&disk.path).exists());
    hypervisor.detach(&vm, &disk, &Free).await.unwrap();
    let gone = hypervisor.destroy(&hypervisor.again(&vm).await, &permit).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Changed, "{gone}");
    assert!(hypervisor.again(&vm).await.disk(disk.uuid).is_some() && bed.file(&disk.path).exists());
}

#[tokio::test]
async fn slow_directory_listing_delays_nothing_else() {
    let (bed, hypervisor, image) = limited(Settings { calls: 1, ..Bed::settings() }).await;
    let [holds, runs] = [hypervisor.added("cp1", &image).await, hypervisor.added("cp2", &image).await];
    let disk = hypervisor.detached(&holds).await;
    hypervisor.power_on(&runs, &Free).await.unwrap();
    bed.count_anew().await;
    bed.spoil("SearchDatastore_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    let others = async {
        bed.reached("SearchDatastore_Task").await;
        // All requests for the disk are made.
        bed.quiet().await;
        let runs = hypervisor.again(&runs).await;
        let cut = tokio::time::timeout(Duration::from_secs(60), hypervisor.cut_power(&runs, &Free)).await;
        bed.spoil_nothing().await;
        cut.expect("it waits for the datastore").unwrap();
    };
    let (removed, ()) = tokio::join!(hypervisor.delete_disk(&disk, &Free), others);
    removed.unwrap();
    assert!(!bed.file(&disk.path).exists());
}
