//! How large control nodes are to be: what it follows from is looked at, whether a Provider's limits have room for more, and what they may
//! have by now is noted in their Machines, by which limits count. What comes next for it is decided elsewhere.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;

use super::Work;
use super::change::{Changing, has};
use crate::context::{Attempt, Trouble};
use crate::decisions::{Obstacle, Used, limits, permission, pinned_size, wanted_size, workers_of};
use crate::objects::{AUTO, ControlPlaneSize, Machine, MachineSpec, TenantCluster};
use crate::reach::tenants;

impl Work<'_> {
    /// How large the control nodes of a cluster are to be now.
    ///
    /// # Errors
    /// The inner one: why nobody knows it.
    pub(super) async fn size(&self, cluster: &TenantCluster) -> Result<Result<ControlPlaneSize, Obstacle>, Trouble> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let workers = match cluster.spec.control_plane.vm_class.as_str() {
            AUTO => workers_of(&self.pools(cluster).await?).wanted,
            _ => 0,
        };
        let class = self.class(cluster).await?.map(|class| class.spec);
        Ok(wanted_size(&cluster.spec, &pinned, class.as_ref(), u32::try_from(workers).unwrap_or_default()))
    }

    /// Why a Provider has no room for control nodes that are larger than they were; none for others: what is there stays. While one is
    /// swapped it counts as the larger of both, for it may go back.
    pub(super) async fn no_room(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        size: ControlPlaneSize,
    ) -> Result<Option<Obstacle>, Trouble> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.as_ref()).and_then(pinned_size);
        let Some(held) = pinned.map(|pinned| pinned.larger(size)).filter(|held| Some(*held) != pinned) else {
            return Ok(None);
        };
        let Some(provider) = self.provider(cluster).await? else { return Ok(None) };
        if let Some(obstacle) = permission(&provider, &cluster.namespace().unwrap_or_default()) {
            return Ok(Some(obstacle));
        }
        if provider.spec.limits.is_none() {
            return Ok(None);
        }
        let tenants = tenants(self.objects).await.attempting("looking at what a Provider's clusters have")?;
        let own: BTreeSet<Option<&str>> = machines.iter().map(|machine| machine.metadata.uid.as_deref()).collect();
        let used = tenants.used(&provider.name_any(), |machine| !own.contains(&machine.metadata.uid.as_deref()));
        let grown = |machine: &Machine| MachineSpec {
            processors: held.processors,
            memory_mib: held.memory_mib,
            ..machine.spec.clone()
        };
        let wanted: Vec<MachineSpec> = machines.iter().map(grown).collect();
        Ok(limits(&provider, used, Used::of(&wanted)))
    }

    /// Has the Machines of control nodes say what these may have by now; whether they did not.
    pub(super) async fn holds_size(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        changing: &Changing,
    ) -> Result<bool, Trouble> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let swap = changing.swap.as_ref().map(|(_, swapping)| swapping);
        let Some(size) = changing.change.holds(&pinned, swap) else { return Ok(false) };
        let ControlPlaneSize { processors, memory_mib } = size;
        let mut any = false;
        for machine in machines.iter().filter(|machine| !has(machine, size)) {
            self.respecify(machine, &json!({"processors": processors, "memoryMiB": memory_mib})).await?;
            any = true;
        }
        Ok(any)
    }
}
