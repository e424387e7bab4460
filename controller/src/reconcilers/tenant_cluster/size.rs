//! The size of control-plane nodes: reads its sources, and checks the Provider's limits. Records the present or possible size in
//! the Machines, by which limits count, before the first new VM.
//!
//! After a commit, image and size are pinned: first in the Machines, then in `status.resolved`, which pools follow. Each write is
//! skipped if it is done already, so an interruption loses nothing. The next change is decided elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::minor::Minor;
use fleet::control_plane::DeployStatus;
use kube::ResourceExt;
use serde_json::json;

use super::change::ChangeDecision;
use super::{Round, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    Access, NodeSizes, Obstacle, ResourceUsage, growth, is_bounded, pinned_size, seen_size, wanted_size, workers_of,
};
use crate::objects::{AUTO, ControlPlaneSize, Machine, MachineSpec, PinnedImage, Resolved};
use crate::reach::Collection;
use crate::reconcilers::tenants;

/// How long a cluster waits for each later one to give back its recorded size, and for how many at most.
const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 6;

impl Round<'_> {
    /// The desired size of a cluster's control-plane nodes.
    ///
    /// # Errors
    /// Inner error: why it is unknown.
    pub(super) async fn size(&self) -> Result<Result<ControlPlaneSize, Obstacle>, ReconcileError> {
        let cluster = self.cluster;
        let pinned = cluster.resolved().cloned().unwrap_or_default();
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
        seen: &DeployStatus,
        size: ControlPlaneSize,
    ) -> Result<Option<Obstacle>, ReconcileError> {
        let Self { cluster, machines, .. } = *self;
        let pinned = cluster.resolved().and_then(pinned_size);
        let has = machines.iter().map(|machine| has(machine, pinned, seen)).collect::<Vec<_>>();
        let grown = has.iter().map(|has| has.larger(size)).collect::<Vec<_>>();
        if grown == has {
            return Ok(None);
        }
        let Some(provider) = self.provider(cluster).await? else { return Ok(None) };
        let (tenants, namespace) = (tenants(self.objects).await?, cluster.namespace().unwrap_or_default());
        let access = Access::of(&tenants, &namespace);
        let class = || access.class(&cluster.spec.control_plane.vm_class);
        if let Some(obstacle) = access.provider(&provider).or_else(class) {
            return Ok(Some(obstacle));
        }
        if !is_bounded(&provider, access.tenant()) {
            return Ok(None);
        }
        let inventory = self.objects.inventory().await.attempting("looking at what clusters have")?;
        let own: BTreeSet<Option<&str>> = machines.iter().map(|machine| machine.metadata.uid.as_deref()).collect();
        let is_other = |machine: &Machine| !own.contains(&machine.metadata.uid.as_deref());
        let budgets = inventory.budgets(&provider, &namespace, is_other);
        let together = |sizes: Vec<ControlPlaneSize>| {
            let sized = |(machine, size): (&Machine, ControlPlaneSize)| MachineSpec {
                processors: size.processors,
                memory_mib: size.memory_mib,
                ..machine.spec.clone()
            };
            ResourceUsage::of(&machines.iter().zip(sizes).map(sized).collect::<Vec<_>>())
        };
        Ok(growth(&budgets, together(has), together(grown)))
    }

    /// Records the present or possible size in the Machines of control-plane nodes. True if a Machine was changed, or another
    /// look is needed. A recorded size without room is given back in turn.
    pub(super) async fn reserve_size(
        &self,
        seen: &DeployStatus,
        decision: &ChangeDecision,
    ) -> Result<bool, ReconcileError> {
        let Self { cluster, machines, .. } = *self;
        let pinned = cluster.resolved().and_then(pinned_size);
        let swap = decision.swap.as_ref().map(|(_, swapping)| swapping);
        let mut others = Vec::new();
        for machine in machines {
            let node = NodeSizes { noted: noted(machine), pinned, seen: seen_size(seen, &machine.name_any()) };
            let size = decision.change.holds(node, swap, cluster.spec.paused);
            if size != node.noted {
                others.push((machine, size));
            }
        }
        let gives_back = others.iter().any(|(machine, size)| size.larger(noted(machine)) != *size);
        if let Some(wanted) = decision.lacks_room_for().filter(|_| gives_back)
            && self.gets_room(seen, wanted).await?
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
    async fn gets_room(&self, seen: &DeployStatus, size: ControlPlaneSize) -> Result<bool, ReconcileError> {
        let inventory = self.objects.inventory().await.attempting("looking at what clusters have")?;
        for _ in 0..inventory.growing_after(self.cluster).min(TURNS) {
            tokio::select! {
                () = tokio::time::sleep(TURN) => {}
                () = self.term.closing() => return Ok(true),
            }
            if self.no_room(seen, size).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pins an image and a size, in the Machines first. The Operation records the pin last, so it is not pinned twice.
    pub(super) async fn pin(&self, resolved: &Resolved, of: Option<&str>) -> Result<StepOutcome, ReconcileError> {
        let (Some(name), Some(digest)) = (&resolved.image, &resolved.digest) else {
            return Ok(StepOutcome::RequeueNow);
        };
        let image = PinnedImage { name: name.clone(), digest: digest.clone() };
        let size = pinned_size(resolved);
        let is_so = |machine: &&Machine| machine.spec.image == image && size.is_none_or(|size| noted(machine) == size);
        for machine in self.machines.iter().filter(|machine| !is_so(machine)) {
            let mut part = json!({"image": image});
            if let Some(ControlPlaneSize { processors, memory_mib }) = size {
                (part["processors"], part["memoryMiB"]) = (processors.into(), memory_mib.into());
            }
            self.respecify(machine, &part).await?;
        }
        self.note(self.cluster, &[], |status| status.resolved = Some(resolved.clone())).await?;
        if let Some(name) = of {
            self.note_operation(name, &[], |status| status.resolved_updated = true).await?;
        }
        Ok(StepOutcome::RequeueNow)
    }

    /// Records a minor version in the Machines of control-plane nodes.
    pub(super) async fn pin_minor(&self, machines: &[Machine], to: Minor) -> Result<(), ReconcileError> {
        let to = to.to_string();
        for machine in machines.iter().filter(|machine| machine.spec.kubernetes != to) {
            self.respecify(machine, &json!({"kubernetes": to})).await?;
        }
        Ok(())
    }

    async fn respecify(&self, machine: &Machine, part: &serde_json::Value) -> Result<(), ReconcileError> {
        let part = json!({"metadata": {"resourceVersion": machine.metadata.resource_version}, "spec": part});
        let of = Collection::of::<Machine>(machine.namespace().as_deref());
        let written = self.objects.patch(&of, &machine.name_any(), &part).await;
        written.map(drop).attempting("noting what a control-plane node runs")
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
