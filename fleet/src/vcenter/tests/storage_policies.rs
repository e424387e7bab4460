//! Storage policies of new VMs and of their disks.

use serde_json::json;

use super::*;
use crate::vcenter::{Clones, Site};

/// A policy that vcsim has, and its identifier.
const POLICY: &str = "vSAN Default Storage Policy";
const ID: &str = "aa6d5a82-1c88-45da-85d3-3d74b91a5bad";

fn site(bed: &Bed, policy: &str) -> Site {
    Site { storage_policy: Some(policy.to_owned()), ..bed.site() }
}

#[tokio::test]
async fn new_vms_and_disks_have_the_policy() {
    for clones in [Clones::Linked, Clones::Full] {
        let (bed, ova) = (Bed::start(&[]), ova());
        let hypervisor = bed.hypervisor_of(DEPLOYMENT, &Site { clones, ..site(&bed, POLICY) }).await;
        hypervisor.preflight(&Placement::default()).await.unwrap();
        let image = hypervisor.lay(&ova).await;
        let vm = hypervisor.added("cp1", &image).await;
        hypervisor.replaced(&vm, "cp1-new", &image).await.unwrap();
        for (name, disks) in [("cp1", 2), ("cp1-new", 1)] {
            let machine = bed.machine(name).await.unwrap();
            assert_eq!((machine.policy.as_str(), machine.disks.len()), (ID, disks), "{clones:?}");
            let has = |disk: &String| machine.policies.get(disk).is_some_and(|policy| policy == ID);
            assert!(machine.disks.keys().all(has), "{clones:?}: {machine:?}");
        }
        assert_eq!(bed.count("PbmQueryProfile").await, 1, "it is looked up once");
        let template = bed.machines().await.into_iter().find(|machine| machine.template).expect("a template");
        assert!(template.policy.is_empty() && template.policies.is_empty(), "{template:?}");
    }
}

#[tokio::test]
async fn site_without_policy_requests_none() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor().await;
    hypervisor.preflight(&Placement::default()).await.unwrap();
    let image = hypervisor.lay(&ova).await;
    hypervisor.added("cp1", &image).await;
    let machine = bed.machine("cp1").await.unwrap();
    assert!(machine.policy.is_empty() && machine.policies.is_empty(), "{machine:?}");
    assert_eq!(bed.count("PbmRetrieveServiceContent").await, 0);
}

#[tokio::test]
async fn missing_policy_blocks_only_new_vms() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let image = bed.hypervisor().await.lay(&ova).await;
    let vm = bed.hypervisor().await.added("cp1", &image).await;
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site(&bed, "gold")).await;
    for error in [
        hypervisor.preflight(&Placement::default()).await.unwrap_err(),
        hypervisor.try_add("cp2", &image).await.unwrap_err(),
    ] {
        says(&error, ErrorKind::Refused, "there is no storage policy gold");
        says(&error, ErrorKind::Refused, POLICY);
    }
    assert_eq!(bed.machine("cp2").await, None);
    hypervisor.power_on(&vm, &Free).await.unwrap();
    hypervisor.cut_power(&hypervisor.again(&vm).await, &Free).await.unwrap();
}

#[tokio::test]
async fn refusal_of_vcenter_names_the_policy() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site(&bed, POLICY)).await;
    let image = hypervisor.lay(&ova).await;
    bed.spoil("CloneVM_Task", "fault", json!({ "fault": "InvalidArgument" })).await;
    let error = hypervisor.try_add("cp1", &image).await.unwrap_err();
    says(&error, ErrorKind::Refused, &format!("with the storage policy {POLICY} ("));
    says(&error, ErrorKind::Refused, "InvalidArgument");
    bed.spoil_nothing().await;
    hypervisor.added("cp1", &image).await;
}

#[tokio::test]
async fn clone_refuses_policy_and_retries_failed_policy_service() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site(&bed, POLICY)).await;
    let image = hypervisor.lay(&ova).await;
    for (message, kind, words) in [
        (
            "Changing or applying VM Storage Policies with Data Service capabilities during clone operations is disallowed.",
            ErrorKind::Refused,
            "a policy with encryption, I/O filters or I/O control cannot be given to a clone",
        ),
        (
            "PBM error occurred during PreCloneCheckCallback: Connection refused",
            ErrorKind::Transient,
            "vCenter's storage policy service did not answer",
        ),
        (
            "something else",
            ErrorKind::InDoubt,
            "vSphere Client shows which datastores are compatible with it; one with replication, which wants a replication group, cannot be \
             given here",
        ),
    ] {
        let message = format!("A general system error occurred: {message}");
        bed.spoil("CloneVM_Task", "fault", json!({ "fault": "SystemError", "message": message })).await;
        let error = hypervisor.try_add("cp1", &image).await.unwrap_err();
        bed.spoil_nothing().await;
        says(&error, kind, words);
    }
    hypervisor.added("cp1", &image).await;
}

#[tokio::test]
async fn missing_privilege_for_policies_is_reported_if_needed() {
    let view = "StorageProfile.View";
    let few: Vec<&str> = vsphere::PRIVILEGES.iter().map(|row| row.id).filter(|id| *id != view).collect();
    let bed = Bed::of_users(&[
        json!({ "name": bed::ADMINISTRATOR, "password": testbed::PASSWORD }),
        json!({ "name": "few@vsphere.local", "password": "f", "privileges": few }),
    ]);
    drop(bed.hypervisor().await);
    let of = async |site: &Site| {
        let client = bed.client_of("few@vsphere.local", "f").await;
        VcenterHypervisor::new(client, DEPLOYMENT, site, &journal_of(DEPLOYMENT)).await.unwrap()
    };
    of(&bed.site()).await.preflight(&Placement::default()).await.unwrap();
    let hypervisor = of(&site(&bed, POLICY)).await;
    let error = hypervisor.preflight(&Placement::default()).await.unwrap_err();
    says(&error, ErrorKind::Denied, "StorageProfile.View on the root of the vCenter");
    assert_eq!(hypervisor.policy().await.unwrap_err().kind, ErrorKind::Denied);
}
