//! How large control nodes are to be: what it follows from is looked at, whether a Provider's limits have room for more, and how large they
//! are or may be by now is noted in their Machines, by which limits count. What comes next for it is decided elsewhere.

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

/// How long a cluster waits for the next one that came later to give back what it has noted, and for how many at most.
const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 6;

impl Reconciler<'_> {
    /// How large the control nodes of a cluster are to be now.
    ///
    /// # Errors
    /// The inner one: why nobody knows it.
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

    /// Why a Provider has no room for control nodes of a size, where one of them is smaller; none for others: what is there stays. While one
    /// is swapped it counts as the larger of both, for it may go back.
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

    /// Has the Machines of control nodes say how large these are, or may be by now; whether they did not, or it is to be looked again. What was
    /// noted, and has no room, is given back in its turn.
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

    /// Waits while clusters that have noted the same, and came later, give back what they have noted; whether there is room then.
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

/// How large a control node is by its Machine.
fn noted(machine: &Machine) -> ControlPlaneSize {
    ControlPlaneSize { processors: machine.spec.processors, memory_mib: machine.spec.memory_mib }
}

/// How large it is without anybody having been asked for more room, as far as that is seen.
fn has(machine: &Machine, pinned: Option<ControlPlaneSize>, seen: &DeployStatus) -> ControlPlaneSize {
    let size = seen_size(seen, &machine.name_any()).or(pinned).unwrap_or_else(|| noted(machine));
    pinned.map_or(size, |pinned| pinned.larger(size))
}
