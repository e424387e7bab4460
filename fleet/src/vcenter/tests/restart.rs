//! What vSphere HA is told of the deployment's VMs.

use vsphere::{MoRef, RestartPriority};

use super::*;
use crate::vcenter::Site;

/// The hypervisor, and what names the cluster.
async fn wishing(bed: &Bed, different_hosts: bool, restart: Option<RestartPriority>) -> (VcenterHypervisor, MoRef) {
    let site = Site { different_hosts, restart, ..bed.site() };
    let cluster = bed.client().await.find("DC0/host/DC0_C0").await.unwrap();
    (bed.hypervisor_of(DEPLOYMENT, &site).await, cluster)
}

#[tokio::test]
async fn a_vm_is_started_again_as_it_is_wanted_and_a_disconnected_one_by_nobody() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = wishing(&bed, false, Some(RestartPriority::High)).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    let named = MoRef::vm(&vm.reference.id);
    let priority = async || client.restart_priority(&cluster, &named).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::High));
    let now = async || hypervisor.again(&vm).await;
    hypervisor.cut_power(&now().await, &Free).await.unwrap();
    let key = vm.adapters[0].key.clone();
    hypervisor.connect(&now().await, &key, false, &Free).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::Disabled));
    hypervisor.connect(&now().await, &key, true, &Free).await.unwrap();
    hypervisor.power_on(&now().await, &Free).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::High));
}

#[tokio::test]
async fn a_persons_priority_stays_where_none_is_wanted_and_what_vcenter_refuses_stops_nothing() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = wishing(&bed, true, None).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let named = MoRef::vm(&vm.reference.id);
    let highest = Some(RestartPriority::Highest);
    client.changes(&vsphere::Unguarded).set_restart_priority(&cluster, &named, highest).await.unwrap();
    hypervisor.power_on(&vm, &Free).await.unwrap();
    assert_eq!(client.restart_priority(&cluster, &named).await.unwrap(), highest);
    let refused = serde_json::json!({ "fault": "NoPermission" });
    bed.spoil("ReconfigureComputeResource_Task", "fault", refused).await;
    let key = vm.adapters[0].key.clone();
    hypervisor.connect(&hypervisor.again(&vm).await, &key, false, &Free).await.unwrap();
    assert_eq!(client.restart_priority(&cluster, &named).await.unwrap(), highest);
    assert!(hypervisor.again(&vm).await.is_fenced());
}

/// An upgrade with another description of the cluster has set that, or a person.
#[tokio::test]
async fn without_a_wish_a_vm_that_nobody_starts_again_is_named_and_left_so() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = wishing(&bed, false, None).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let named = MoRef::vm(&vm.reference.id);
    let disabled = Some(RestartPriority::Disabled);
    for (priority, is_told) in [(None, false), (Some(RestartPriority::High), false), (disabled, true)] {
        client.changes(&vsphere::Unguarded).set_restart_priority(&cluster, &named, priority).await.unwrap();
        let words = hypervisor.left_off(&client.vm(&named).await.unwrap()).await;
        let tells = words.as_ref().is_some_and(|words| words.contains("vSphere HA does not start cp1 after"));
        assert_eq!((words.is_some(), tells), (is_told, is_told), "{priority:?}: {words:?}");
    }
    // It is looked for at power-on, which looks at the VM alone otherwise.
    bed.count_anew().await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    let looks = bed.count("RetrievePropertiesEx").await;
    assert!(looks >= 3, "the VM, the owner of its pool, what is set for single VMs: {looks}");
    assert_eq!(client.restart_priority(&cluster, &named).await.unwrap(), disabled);
}

#[tokio::test]
async fn without_a_wish_the_cluster_is_left_alone() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, _) = wishing(&bed, false, None).await;
    let image = hypervisor.lay(&ova).await;
    for node in ["cp1", "cp2"] {
        let vm = hypervisor.added(node, &image).await;
        hypervisor.power_on(&vm, &Free).await.unwrap();
        hypervisor.connect(&hypervisor.again(&vm).await, &vm.adapters[0].key, false, &Free).await.unwrap();
    }
    assert_eq!(bed.count("ReconfigureComputeResource_Task").await, 0);
}
