//! The order in which growing clusters release what they have reserved for larger control-plane nodes, if a Provider's limits do
//! not suffice for all. Each has reserved before it checked the limits, and sees the others. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::limits::{ClusterInventory, Key, cluster_of, key_of, since};
use super::sizes::pinned_size;
use crate::objects::{ControlPlaneSize, Machine, TenantCluster};

impl ClusterInventory {
    /// The number of clusters on the same Provider that came after this one and have reserved larger control-plane nodes. Each of
    /// them releases its reservation before this cluster. The first cluster waits for no other, so that not all release theirs
    /// again and again.
    pub fn growing_after(&self, cluster: &TenantCluster) -> usize {
        let mut control: BTreeMap<Key, Vec<&Machine>> = BTreeMap::new();
        for machine in self.machines.iter().filter(|machine| machine.spec.pool_ref.is_none()) {
            control.entry(cluster_of(machine)).or_default().push(machine);
        }
        let of = |cluster: &TenantCluster| control.get(&key_of(cluster)).map(Vec::as_slice).unwrap_or_default();
        let own = since(cluster, of(cluster));
        let grows_later = |other: &&TenantCluster| {
            other.spec.provider_ref.name == cluster.spec.provider_ref.name
                && since(other, of(other)) > own
                && of(other).iter().any(|machine| grows(other, machine))
        };
        self.clusters.iter().filter(|other| other.uid() != cluster.uid()).filter(grows_later).count()
    }
}

/// Whether a control-plane node is reserved with a larger size than the cluster's resolved one.
fn grows(cluster: &TenantCluster, machine: &Machine) -> bool {
    let noted = ControlPlaneSize { processors: machine.spec.processors, memory_mib: machine.spec.memory_mib };
    let pinned = cluster.resolved().and_then(pinned_size);
    pinned.is_some_and(|pinned| pinned.larger(noted) != pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::{Reference, Resolved, TenantClusterStatus};

    /// A small cluster whose control-plane node is reserved with this number of processors. Clusters that came first have lower
    /// UIDs.
    fn noted(name: &str, processors: u32) -> (TenantCluster, Machine) {
        let mut cluster = cluster();
        (cluster.metadata.name, cluster.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        let resolved = Resolved { processors: Some(2), memory_mib: Some(4096), ..Resolved::default() };
        cluster.status = Some(TenantClusterStatus { resolved: Some(resolved), ..TenantClusterStatus::default() });
        let mut machine = Machine::new(&format!("{name}-cp1"), crate::objects::fixture::worker());
        machine.metadata.namespace.clone_from(&cluster.metadata.namespace);
        (machine.spec.cluster_ref, machine.spec.pool_ref) = (Reference::to(name), None);
        (machine.spec.processors, machine.spec.memory_mib) = (processors, 4096);
        (cluster, machine)
    }

    #[test]
    fn last_growing_cluster_releases_first() {
        let all = [noted("amber", 4), noted("blue", 4), noted("coral", 2), noted("dune", 4)];
        let after = |all: &[(TenantCluster, Machine)]| -> Vec<usize> {
            let (clusters, machines) = all.iter().cloned().unzip();
            let tenants = ClusterInventory { clusters, machines, ..ClusterInventory::default() };
            all.iter().map(|(cluster, _)| tenants.growing_after(cluster)).collect()
        };
        assert_eq!(after(&all), [2, 1, 1, 0], "who is as it is pinned gives nothing back");
        let mut elsewhere = all.clone();
        elsewhere[3].0.spec.provider_ref = Reference::to("dc2");
        assert_eq!(after(&elsewhere), [1, 0, 0, 0]);
        let mut workers = all;
        workers[3].1.spec.pool_ref = Some(Reference::to("dune-general"));
        assert_eq!(after(&workers), [1, 0, 0, 0], "a worker is no control node");
    }
}
