//! The next step of a cluster that is being deleted. Its pools come first, then its control-plane nodes, then all other objects
//! that were created for it.

use fleet::control_plane::Lifecycle;

use super::{is_kept, is_ours};
use crate::objects::{Machine, NodePool, PoolAddress, TenantCluster};

#[derive(Debug)]
pub struct DeletionInputs<'a> {
    pub cluster: &'a TenantCluster,
    pub pools: Vec<NodePool>,
    pub machines: Vec<Machine>,
    /// The addresses of the cluster and its Machines.
    pub addresses: Vec<PoolAddress>,
    /// The Secrets that were created for it, by name.
    pub secrets: Vec<String>,
    /// The Operations that were created for it, by name.
    pub operations: Vec<String>,
    /// Operations whose deletion was requested and that another finalizer keeps.
    pub held_operations: Vec<String>,
    /// The numbers of its leases, the lowest first. If they are removed in this order, the rest has no gaps.
    pub holds: Vec<u64>,
}

/// The next step of a cluster that is being deleted. It asks for nothing that it does not need: without a VM no vCenter, and
/// never for an image, a class or a key.
#[derive(Clone, Debug, PartialEq)]
pub enum DeletionStep {
    DeletePools(Vec<String>),
    /// Pools and workers are being deleted. The control plane waits for them.
    AwaitWorkers(Vec<String>),
    Destroy,
    /// Release an address: its VM is deleted.
    Release(Box<PoolAddress>),
    /// Delete a Machine: its VM is deleted.
    Forget(Box<Machine>),
    RemoveSecret(String),
    RemoveOperation(String),
    /// Another finalizer keeps Operations. Another cluster of this name would take them for its own.
    AwaitOperations(Vec<String>),
    /// Remove a lease: no further one is acquired.
    RemoveLease(u64),
    /// Nothing is left: remove the finalizer, so that the object is deleted.
    RemoveFinalizer,
    /// The finalizer was already removed.
    Gone,
}

pub fn deletion_step(leaving: &DeletionInputs<'_>) -> DeletionStep {
    let cluster = leaving.cluster;
    if !is_kept(cluster) {
        return DeletionStep::Gone;
    }
    let name = |metadata: &kube::api::ObjectMeta| metadata.name.clone().unwrap_or_default();
    let pools = leaving.pools.iter().filter(|pool| pool.metadata.deletion_timestamp.is_none());
    let pools: Vec<String> = pools.map(|pool| name(&pool.metadata)).collect();
    if !pools.is_empty() {
        return DeletionStep::DeletePools(pools);
    }
    let workers = leaving.machines.iter().filter(|machine| machine.spec.pool_ref.is_some());
    let left: Vec<String> = leaving
        .pools
        .iter()
        .map(|pool| name(&pool.metadata))
        .chain(workers.map(|machine| name(&machine.metadata)))
        .collect();
    if !left.is_empty() {
        return DeletionStep::AwaitWorkers(left);
    }
    let deployment = cluster.deployment();
    // A record precedes each action: without a record there is no VM.
    if deployment.is_some_and(|deployment| deployment.record.lifecycle != Lifecycle::Deleted) {
        return DeletionStep::Destroy;
    }
    // Each is deleted once. Its finalizer may keep it until its VM is deleted too.
    if let Some(address) = leaving.addresses.iter().find(|it| it.metadata.deletion_timestamp.is_none()) {
        return DeletionStep::Release(Box::new(address.clone()));
    }
    // A Machine with only another finalizer is skipped: a second request changes nothing.
    if let Some(machine) = leaving.machines.iter().find(|machine| is_ours(machine)) {
        return DeletionStep::Forget(Box::new(machine.clone()));
    }
    if let Some(secret) = leaving.secrets.first() {
        return DeletionStep::RemoveSecret(secret.clone());
    }
    if let Some(operation) = leaving.operations.first() {
        return DeletionStep::RemoveOperation(operation.clone());
    }
    if !leaving.held_operations.is_empty() {
        return DeletionStep::AwaitOperations(leaving.held_operations.clone());
    }
    match leaving.holds.first() {
        Some(hold) => DeletionStep::RemoveLease(*hold),
        None => DeletionStep::RemoveFinalizer,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::decisions::{CLUSTER_FINALIZER, MACHINE_FINALIZER, claims};
    use crate::objects::{Deployment, NodePoolSpec, TenantClusterStatus};

    fn deployed(goal: Lifecycle) -> TenantCluster {
        let mut cluster = cluster();
        cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]);
        cluster.metadata.deletion_timestamp = Some(now());
        let deployment: Deployment =
            serde_json::from_value(serde_json::json!({"cluster": "shop", "lifecycle": goal, "image": {"name": "a"}}))
                .unwrap();
        cluster.status = Some(TenantClusterStatus { deployment: Some(deployment), ..TenantClusterStatus::default() });
        cluster
    }

    fn leaving(cluster: &TenantCluster) -> DeletionInputs<'_> {
        let spec = serde_json::json!({"clusterRef": {"name": "shop"}, "vmClass": "medium"});
        let mut control = Machine::new("shop-cp1", crate::objects::fixture::worker());
        control.spec.pool_ref = None;
        let worker = Machine::new("shop-general-w1", crate::objects::fixture::worker());
        let claimant = claims(cluster, &[], "blue-nodes").unwrap().remove(0).claimant;
        DeletionInputs {
            cluster,
            pools: vec![NodePool::new("shop-general", serde_json::from_value::<NodePoolSpec>(spec).unwrap())],
            machines: vec![control, worker],
            addresses: vec![crate::decisions::claimed("blue-nodes", Ipv4Addr::new(192, 168, 10, 20), claimant)],
            secrets: vec!["shop-kubeconfig".to_owned()],
            operations: vec!["shop-1".to_owned()],
            held_operations: Vec::new(),
            holds: vec![3, 4],
        }
    }

    #[test]
    fn deletion_removes_workers_first_and_addresses_after_vms() {
        let (up, gone) = (deployed(Lifecycle::Active), deployed(Lifecycle::Deleted));
        let mut seen = leaving(&up);
        assert_eq!(deletion_step(&seen), DeletionStep::DeletePools(vec!["shop-general".to_owned()]));
        seen.pools[0].metadata.deletion_timestamp = Some(now());
        let left = vec!["shop-general".to_owned(), "shop-general-w1".to_owned()];
        assert_eq!(deletion_step(&seen), DeletionStep::AwaitWorkers(left));
        seen.pools.clear();
        seen.machines.pop();
        assert_eq!(deletion_step(&seen), DeletionStep::Destroy);
        let mut seen = DeletionInputs { cluster: &gone, ..seen };
        assert!(matches!(deletion_step(&seen), DeletionStep::Release(_)));
        seen.addresses.clear();
        assert!(matches!(deletion_step(&seen), DeletionStep::Forget(_)));
        let machine = &mut seen.machines[0].metadata;
        (machine.deletion_timestamp, machine.finalizers) = (Some(now()), Some(vec![MACHINE_FINALIZER.to_owned()]));
        assert!(matches!(deletion_step(&seen), DeletionStep::Forget(_)));
        seen.machines[0].metadata.finalizers = Some(vec!["x.example/y".to_owned()]);
        assert_eq!(deletion_step(&seen), DeletionStep::RemoveSecret("shop-kubeconfig".to_owned()));
        seen.secrets.clear();
        assert_eq!(deletion_step(&seen), DeletionStep::RemoveOperation("shop-1".to_owned()));
        seen.operations.clear();
        seen.held_operations.push("shop-1".to_owned());
        assert_eq!(deletion_step(&seen), DeletionStep::AwaitOperations(vec!["shop-1".to_owned()]));
        seen.held_operations.clear();
        assert_eq!(deletion_step(&seen), DeletionStep::RemoveLease(3));
        seen.holds.clear();
        assert_eq!(deletion_step(&seen), DeletionStep::RemoveFinalizer);
    }

    #[test]
    fn cluster_without_vm_is_deleted_without_a_vcenter() {
        let mut cluster = deployed(Lifecycle::Active);
        cluster.status.as_mut().unwrap().deployment = None;
        let mut seen = leaving(&cluster);
        seen.pools.clear();
        seen.machines.pop();
        assert!(matches!(deletion_step(&seen), DeletionStep::Release(_)));
        cluster.metadata.finalizers = None;
        assert_eq!(deletion_step(&leaving(&cluster)), DeletionStep::Gone);
    }
}
