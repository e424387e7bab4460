//! Concurrent changes by others on the same vCenter, and settings that vCenter refuses.

use std::time::Duration;

use serde_json::json;
use vsphere::{MoRef, Running, Unguarded};

use super::others::full_clone;
use super::*;
use crate::hypervisor::PowerState;
use crate::vcenter::Site;
use crate::vcenter::settle::removes;

#[tokio::test]
async fn successor_waits_for_a_running_disk_deletion() {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("cp1", &image).await;
    let disk = hypervisor.detached(&vm).await;
    bed.delay_unanswered("DeleteVirtualDisk_Task", 1500).await;
    assert_eq!(hypervisor.delete_disk(&disk, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    let successor = bed.hypervisor().await;
    assert!(bed.file(&disk.path).exists());
    assert!(successor.has_pending_deletes().await.unwrap());
    successor.settle(&Free).await.unwrap();
    assert!(!bed.file(&disk.path).exists());
    assert!(!successor.has_pending_deletes().await.unwrap());

    // A task that does not end is named with its owner.
    let vm = hypervisor.added("cp2", &image).await;
    let disk = hypervisor.detached(&vm).await;
    bed.delay_unanswered("DeleteVirtualDisk_Task", 60_000).await;
    assert_eq!(hypervisor.delete_disk(&disk, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    let error = successor.settling_within(Duration::from_millis(200)).settle(&Free).await.unwrap_err();
    for words in ["deleteVirtualDisk", "by administrator@vsphere.local still runs"] {
        says(&error, ErrorKind::Transient, words);
    }
    bed.spoil_nothing().await;
}

#[tokio::test]
async fn settle_ignores_deletions_of_other_accounts() {
    let bed = Bed::with_users();
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let disk = hypervisor.detached(&vm).await;
    assert!(!hypervisor.has_pending_deletes().await.unwrap());
    let other = bed.client_of(testbed::IN_ROLE, testbed::PASSWORD).await;
    let other = VcenterHypervisor::new(other, DEPLOYMENT, &bed.site(), &journal_of(DEPLOYMENT)).await.unwrap();
    bed.delay_unanswered("DeleteVirtualDisk_Task", 60_000).await;
    assert_eq!(other.delete_disk(&disk, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    hypervisor.settling_within(Duration::from_millis(200)).settle(&Free).await.unwrap();
    assert!(bed.file(&disk.path).exists());
    assert!(bed.hypervisor().await.has_pending_deletes().await.unwrap());
    bed.spoil_nothing().await;
}

#[test]
fn only_delete_tasks_count_as_removals() {
    let task = |what: &str| Running {
        task: MoRef::vm("task-1"),
        what: what.to_owned(),
        on: String::new(),
        by: "alice@vsphere.local".to_owned(),
    };
    for what in ["VirtualDiskManager.deleteVirtualDisk", "FileManager.deleteFile", "FileManager.deleteDatastoreFile"] {
        assert!(removes(&task(what)), "{what}");
    }
    let others =
        ["VirtualDiskManager.copyVirtualDisk", "FileManager.moveDatastoreFile", "VirtualMachine.deleteFile", ""];
    for what in others {
        assert!(!removes(&task(what)), "{what}");
    }
}

#[tokio::test]
async fn clone_of_a_node_delays_no_command() {
    let (bed, hypervisor, vm) = with_vm().await;
    let client = bed.client().await;
    bed.make_folder(&client, "backups").await;
    bed.delay_unanswered("CloneVM_Task", 60_000).await;
    full_clone(&client, &MoRef::vm(&vm.reference.id), "backups/backup", None).await.unwrap_err();
    assert!(!hypervisor.again(&vm).await.tasks.is_empty());
    hypervisor.settle(&Free).await.unwrap();
    assert!(!hypervisor.again(&vm).await.tasks.is_empty(), "it still goes on");
    bed.spoil_nothing().await;
}

#[tokio::test]
async fn vm_with_a_snapshot_and_its_disk_stay() {
    let (bed, hypervisor, vm) = with_vm().await;
    let client = bed.client().await;
    client.changes(&Unguarded).create_snapshot(&MoRef::vm(&vm.reference.id), "backup-1", "").await.unwrap();
    // Independent disks are outside snapshots: the disk can be detached, and the snapshot's settings still refer to it.
    let seen = hypervisor.again(&vm).await;
    // A revert to the snapshot would restore the VM's former state.
    let kept = hypervisor.disown(&seen, "kept", &Free).await.unwrap_err();
    let disk = hypervisor.detached(&seen).await;
    let bare = hypervisor.again(&vm).await;
    let error = hypervisor.destroy(&bare, &Free).await.unwrap_err();
    for error in [kept, error] {
        says(&error, ErrorKind::Transient, "has snapshots (backup-1)");
    }
    assert_eq!(hypervisor.again(&vm).await, bare);
    assert!(bed.file(&disk.path).exists());
}

#[tokio::test]
async fn refused_rule_blocks_no_power_on_or_removal() {
    let bed = Bed::start(&["-hosts", "3"]);
    let site = Site { different_hosts: true, ..bed.site() };
    let (hypervisor, ova) = (bed.hypervisor_of(DEPLOYMENT, &site).await, ova());
    let image = hypervisor.lay(&ova).await;
    hypervisor.started("cp1", &image).await;
    let second = hypervisor.added("cp2", &image).await;
    for (what, fault) in [("fail-task", "RuleViolation"), ("fault", "NoPermission")] {
        bed.spoil("ReconfigureComputeResource_Task", what, json!({ "fault": fault, "times": -1 })).await;
        hypervisor.power_on(&hypervisor.again(&second).await, &Free).await.unwrap();
        assert_eq!(hypervisor.again(&second).await.power, PowerState::On, "{fault}");
        hypervisor.cut_power(&hypervisor.again(&second).await, &Free).await.unwrap();
        bed.spoil_nothing().await;
    }
    // A command that was taken over from gets that error, and begins nothing.
    let none = hypervisor.power_on(&hypervisor.again(&second).await, &Few(AtomicUsize::new(0))).await.unwrap_err();
    assert_eq!(none.kind, ErrorKind::Fenced, "{none}");
    hypervisor.power_on(&hypervisor.again(&second).await, &Free).await.unwrap();
    hypervisor.cut_power(&hypervisor.again(&second).await, &Free).await.unwrap();
    hypervisor.detached(&hypervisor.again(&second).await).await;
    bed.spoil("ReconfigureComputeResource_Task", "fail-task", json!({ "fault": "RuleViolation", "times": -1 })).await;
    hypervisor.destroy(&hypervisor.again(&second).await, &Free).await.unwrap();
    assert!(hypervisor.vm(&second.reference).await.is_err_and(|error| error.kind == ErrorKind::NotFound));
}

#[tokio::test]
async fn missing_port_group_hides_no_vm() {
    let (bed, hypervisor, image) = with_image().await;
    let client = bed.client().await;
    let (group, here) = (["DC0_DVPG0"], Placement::default());
    hypervisor.try_add_with("cp1", &image, &group, &properties("cp1"), &here).await.unwrap();
    hypervisor.added("cp2", &image).await;
    let named = async || -> Vec<String> {
        let mut vms = hypervisor.vms().await.unwrap();
        vms.sort_by(|one, other| one.name.cmp(&other.name));
        vms.into_iter().map(|vm| vm.adapters[0].network.clone()).collect()
    };
    assert_eq!(named().await, ["DC0_DVPG0", NETWORK]);
    let group = client.find("DC0/network/DC0_DVPG0").await.unwrap();
    client.changes(&Unguarded).destroy(&group).await.unwrap();
    assert_eq!(named().await, ["", NETWORK]);
    // For any other error the name is unknown, and the call fails.
    bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": "HostCommunication", "times": -1 })).await;
    assert!(hypervisor.vms().await.is_err());
}
