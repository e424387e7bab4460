//! The size of control-plane nodes: reads its sources, and checks the Provider's limits. Records the present or possible size in
//! the Machines, by which limits count. The next change is decided elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet::control_plane::DeployStatus;
use kube::ResourceExt;
use serde_json::json;

use super::super::Reconciler;
use super::decide::ChangeDecision;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    NodeSizes, Obstacle, ResourceUsage, growth, permission, pinned_size, seen_size, wanted_size, workers_of,
};
use crate::objects::{AUTO, ControlPlaneSize, Machine, MachineSpec, TenantCluster};
use crate::reach::cluster_inventory;

/// How long a cluster waits for each later one to give back its recorded size, and for how many at most.
const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 6;

impl Reconciler<'_> {
    /// The desired size of a cluster's control-plane nodes.
    ///
    /// # Errors
    /// Inner error: why it is unknown.
    pub(super) async fn size(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Result<ControlPlaneSize, Obstacle>, ReconcileError> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let workers = match cluster.spec.control_plane.vm_class.as_str() {
            AUTO => workers_of(&self.pools(cluster).await?).desired,
            _ => 0,
        };
        let class = self.class(cluster).await?.map(|class| class.spec);
        Ok(wanted_size(&cluster.spec, &pinned, class.as_ref(), u32::try_from(workers).unwrap_or_default()))
    }

    /// Why a Provider has no room for control-plane nodes of a size, if one of them is smaller. `None` otherwise: existing nodes
    /// stay. A node that is being swapped counts with the larger size, because it may be rolled back.
    pub(super) async fn no_room(
        &self,
        cluster: &TenantCluster,
        (machines, seen): (&[Machine], &DeployStatus),
        size: ControlPlaneSize,
    ) -> Result<Option<Obstacle>, ReconcileError> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.as_ref()).and_then(pinned_size);
        let has = machines.iter().map(|machine| has(machine, pinned, seen)).collect::<Vec<_>>();
        let grown = has.iter().map(|has| has.larger(size)).collect::<Vec<_>>();
        if grown == has {
            return Ok(None);
        }
        let Some(provider) = self.provider(cluster).await? else { return Ok(None) };
        if let Some(obstacle) = permission(&provider, &cluster.namespace().unwrap_or_default()) {
            return Ok(Some(obstacle));
        }
        if provider.spec.limits.is_none() {
            return Ok(None);
        }
        let tenants = cluster_inventory(self.objects).await.attempting("looking at what a Provider's clusters have")?;
        let own: BTreeSet<Option<&str>> = machines.iter().map(|machine| machine.metadata.uid.as_deref()).collect();
        let used = tenants.used(&provider.name_any(), |machine| !own.contains(&machine.metadata.uid.as_deref()));
        let together = |sizes: Vec<ControlPlaneSize>| {
            let sized = |(machine, size): (&Machine, ControlPlaneSize)| MachineSpec {
                processors: size.processors,
                memory_mib: size.memory_mib,
                ..machine.spec.clone()
            };
            ResourceUsage::of(&machines.iter().zip(sizes).map(sized).collect::<Vec<_>>())
        };
        Ok(growth(&provider, used, together(has), together(grown)))
    }

    /// Records the present or possible size in the Machines of control-plane nodes. True if a Machine was changed, or another
    /// look is needed. A recorded size without room is given back in turn.
    pub(in crate::reconcilers::tenant_cluster) async fn holds_size(
        &self,
        cluster: &TenantCluster,
        (machines, seen): (&[Machine], &DeployStatus),
        changing: &ChangeDecision,
    ) -> Result<bool, ReconcileError> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.as_ref()).and_then(pinned_size);
        let swap = changing.swap.as_ref().map(|(_, swapping)| swapping);
        let mut others = Vec::new();
        for machine in machines {
            let node = NodeSizes { noted: noted(machine), pinned, seen: seen_size(seen, &machine.name_any()) };
            let size = changing.change.holds(node, swap, cluster.spec.paused);
            if size != node.noted {
                others.push((machine, size));
            }
        }
        let gives_back = others.iter().any(|(machine, size)| size.larger(noted(machine)) != *size);
        if let Some(wanted) = changing.lacks_room_for().filter(|_| gives_back)
            && self.gets_room(cluster, (machines, seen), wanted).await?
        {
            return Ok(true);
        }
        for &(machine, size) in &others {
            let part = json!({"processors": size.processors, "memoryMiB": size.memory_mib});
            self.respecify(machine, &part).await?;
        }
        Ok(!others.is_empty())
    }

    /// Waits while later clusters with the same recorded size give it back. True if there is room then.
    async fn gets_room(
        &self,
        cluster: &TenantCluster,
        looked: (&[Machine], &DeployStatus),
        size: ControlPlaneSize,
    ) -> Result<bool, ReconcileError> {
        let tenants = cluster_inventory(self.objects).await.attempting("looking at what a Provider's clusters have")?;
        for _ in 0..tenants.growing_after(cluster).min(TURNS) {
            tokio::select! {
                () = tokio::time::sleep(TURN) => {}
                () = self.term.closing() => return Ok(true),
            }
            if self.no_room(cluster, looked, size).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The size of a control-plane node in its Machine.
fn noted(machine: &Machine) -> ControlPlaneSize {
    ControlPlaneSize { processors: machine.spec.processors, memory_mib: machine.spec.memory_mib }
}

/// The size without a request for more, as far as it was observed.
fn has(machine: &Machine, pinned: Option<ControlPlaneSize>, seen: &DeployStatus) -> ControlPlaneSize {
    let size = seen_size(seen, &machine.name_any()).or(pinned).unwrap_or_else(|| noted(machine));
    pinned.map_or(size, |pinned| pinned.larger(size))
}
