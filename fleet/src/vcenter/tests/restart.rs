//! The settings of vSphere HA for the deployment's VMs.

use vsphere::{MoRef, RestartPriority};

use super::*;
use crate::vcenter::Site;

/// The hypervisor, and the reference of the cluster.
async fn wishing(bed: &Bed, different_hosts: bool, restart: Option<RestartPriority>) -> (VcenterHypervisor, MoRef) {
    let site = Site { different_hosts, restart, ..bed.site() };
    let cluster = bed.client().await.find("DC0/host/DC0_C0").await.unwrap();
    (bed.hypervisor_of(DEPLOYMENT, &site).await, cluster)
}

#[tokio::test]
async fn restart_priority_is_set_and_off_when_disconnected() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = wishing(&bed, false, Some(RestartPriority::High)).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.started("cp1", &image).await;
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
async fn operators_priority_stays_and_refusal_stops_nothing() {
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

/// An upgrade with another description of the cluster has set that, or an operator.
#[tokio::test]
async fn disabled_restart_is_reported_and_kept() {
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
    // It is checked at power-on, which reads only the VM otherwise.
    bed.count_anew().await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    let looks = bed.count("RetrievePropertiesEx").await;
    assert!(looks >= 3, "the VM, the owner of its pool, what is set for single VMs: {looks}");
    assert_eq!(client.restart_priority(&cluster, &named).await.unwrap(), disabled);
}

#[tokio::test]
async fn cluster_without_settings_is_not_changed() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, _) = wishing(&bed, false, None).await;
    let image = hypervisor.lay(&ova).await;
    for node in ["cp1", "cp2"] {
        let vm = hypervisor.started(node, &image).await;
        hypervisor.connect(&hypervisor.again(&vm).await, &vm.adapters[0].key, false, &Free).await.unwrap();
    }
    assert_eq!(bed.count("ReconfigureComputeResource_Task").await, 0);
}

#[tokio::test]
async fn rule_excludes_a_vm_in_another_cluster() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = wishing(&bed, true, None).await;
    bed.govc(&["cluster.create", "-dc", "DC0", "DC0_C1"]);
    bed.govc(&["cluster.change", "-dc", "DC0", "-drs-enabled", "DC0_C1"]);
    let host = ["-hostname", "another", "-username", "root", "-password", "x", "-noverify"];
    bed.govc(&[["cluster.add", "-dc", "DC0", "-cluster", "DC0_C1"].as_slice(), &host].concat());
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let elsewhere = Placement { resource_pool: Some("DC0_C1".to_owned()), ..Placement::default() };
    let there = hypervisor.added_at("cp3", &image, &elsewhere).await;
    let here = [hypervisor.added("cp1", &image).await, hypervisor.added("cp2", &image).await];
    hypervisor.power_on(&here[0], &Free).await.unwrap();
    let rules = client.anti_affinity_rules(&cluster).await.unwrap();
    let named = |vm: &Vm| MoRef::vm(&vm.reference.id);
    assert!(matches!(rules.as_slice(), [rule] if rule.vms.len() == 2), "{rules:?}");
    assert!(!rules[0].vms.contains(&named(&there)), "{rules:?}");
    // With one VM left in the cluster the rule is deleted, whatever is elsewhere.
    hypervisor.destroy(&hypervisor.again(&here[1]).await, &Free).await.unwrap_err();
    hypervisor.left_by(&here[1]).await;
    assert!(client.anti_affinity_rules(&cluster).await.unwrap().is_empty());
}
