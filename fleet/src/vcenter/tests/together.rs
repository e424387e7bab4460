//! What the cluster of hosts is told of the deployment's VMs.

use vsphere::{MoRef, RestartPriority};

use super::*;
use crate::vcenter::Together;

const RULE: &str = "kaas control";

async fn kept(bed: &Bed, together: Together) -> (VcenterHypervisor, MoRef) {
    let hypervisor = bed.hypervisor().await.keeping(together);
    let cluster = bed.client().await.find("DC0/host/DC0_C0").await.unwrap();
    (hypervisor, cluster)
}

fn apart() -> Together {
    Together { apart: Some(RULE.to_owned()), restart: Some(RestartPriority::High) }
}

/// The VMs of the rule.
async fn ruled(client: &vsphere::Client, cluster: &MoRef) -> Vec<String> {
    let rules = client.anti_affinity_rules(cluster).await.unwrap();
    let rule = rules.into_iter().find(|rule| rule.name == RULE);
    let mut vms: Vec<String> = rule.into_iter().flat_map(|rule| rule.vms).map(|vm| vm.id).collect();
    vms.sort();
    vms
}

#[tokio::test]
async fn vms_are_kept_apart_before_they_run_and_a_disconnected_one_is_started_by_nobody() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = kept(&bed, apart()).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let one = hypervisor.added("cp1", &image).await;
    hypervisor.power_on(&one, &Free).await.unwrap();
    assert_eq!(ruled(&client, &cluster).await, [""; 0], "there is one VM alone");
    let two = hypervisor.added("cp2", &image).await;
    hypervisor.power_on(&two, &Free).await.unwrap();
    let mut both = [one.reference.id.clone(), two.reference.id.clone()];
    both.sort();
    assert_eq!(ruled(&client, &cluster).await, both);
    let vm = MoRef::vm(&two.reference.id);
    let priority = async || client.restart_priority(&cluster, &vm).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::High));
    let two = hypervisor.again(&two).await;
    hypervisor.cut_power(&two, &Free).await.unwrap();
    let two = hypervisor.again(&two).await;
    hypervisor.connect(&two, &two.adapters[0].key, false, &Free).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::Disabled));
    let two = hypervisor.again(&two).await;
    hypervisor.connect(&two, &two.adapters[0].key, true, &Free).await.unwrap();
    hypervisor.power_on(&hypervisor.again(&two).await, &Free).await.unwrap();
    assert_eq!(priority().await, Some(RestartPriority::High));
    // The rule goes with the last of them.
    let rules = async || client.anti_affinity_rules(&cluster).await.unwrap().len();
    for (vm, left) in [(&one, 1), (&two, 0)] {
        hypervisor.cut_power(&hypervisor.again(vm).await, &Free).await.unwrap();
        let off = hypervisor.again(vm).await;
        hypervisor.detach(&off, &off.data_disks().next().unwrap().reference, &Free).await.unwrap();
        hypervisor.destroy(&hypervisor.again(vm).await, &Free).await.unwrap();
        assert_eq!(rules().await, left);
    }
}

#[tokio::test]
async fn a_persons_priority_stays_where_none_is_wished_and_a_wish_that_is_refused_stops_nothing() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, cluster) = kept(&bed, Together { restart: None, ..apart() }).await;
    let client = bed.client().await;
    let image = hypervisor.lay(&ova).await;
    let one = hypervisor.added("cp1", &image).await;
    let vm = MoRef::vm(&one.reference.id);
    let highest = Some(RestartPriority::Highest);
    client.changes(&vsphere::Unguarded).set_restart_priority(&cluster, &vm, highest).await.unwrap();
    hypervisor.power_on(&one, &Free).await.unwrap();
    assert_eq!(client.restart_priority(&cluster, &vm).await.unwrap(), highest);
    let two = hypervisor.added("cp2", &image).await;
    bed.spoil("ReconfigureComputeResource_Task", "fault", serde_json::json!({ "fault": "NoPermission" })).await;
    hypervisor.power_on(&two, &Free).await.unwrap();
    assert_eq!(ruled(&client, &cluster).await, [""; 0]);
    assert_eq!(hypervisor.again(&two).await.power, crate::hypervisor::PowerState::On);
}

#[tokio::test]
async fn without_a_wish_the_cluster_is_left_alone() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let (hypervisor, _) = kept(&bed, Together::default()).await;
    let image = hypervisor.lay(&ova).await;
    for node in ["cp1", "cp2"] {
        let vm = hypervisor.added(node, &image).await;
        hypervisor.power_on(&vm, &Free).await.unwrap();
    }
    assert_eq!(bed.count("ReconfigureComputeResource_Task").await, 0);
}
