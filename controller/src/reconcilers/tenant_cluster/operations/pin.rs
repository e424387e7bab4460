//! Pins image, size and minor version of control-plane nodes: in their Machines, which record what a node runs, and in the
//! cluster's status.

use contract::minor::Minor;
use kube::ResourceExt;
use serde_json::json;

use super::super::{Reconciler, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::pinned_size;
use crate::objects::{ControlPlaneSize, Machine, PinnedImage, Resolved, TenantCluster};
use crate::reach::Collection;

impl Reconciler<'_> {
    /// Pins an image and a size, in the Machines first. The Operation records the pin last, so it is not pinned twice.
    pub(in crate::reconcilers::tenant_cluster) async fn pin(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        resolved: &Resolved,
        of: Option<&str>,
    ) -> Result<StepOutcome, ReconcileError> {
        let (Some(name), Some(digest)) = (&resolved.image, &resolved.digest) else {
            return Ok(StepOutcome::RequeueNow);
        };
        let image = PinnedImage { name: name.clone(), digest: digest.clone() };
        let size = pinned_size(resolved);
        let is_so = |machine: &&Machine| machine.spec.image == image && size.is_none_or(|size| has(machine, size));
        for machine in machines.iter().filter(|machine| !is_so(machine)) {
            let mut part = json!({"image": image});
            if let Some(ControlPlaneSize { processors, memory_mib }) = size {
                (part["processors"], part["memoryMiB"]) = (processors.into(), memory_mib.into());
            }
            self.respecify(machine, &part).await?;
        }
        self.note(cluster, &[], |status| status.resolved = Some(resolved.clone())).await?;
        if let Some(name) = of {
            self.note_operation(cluster, name, &[], |status| status.resolved_updated = true).await?;
        }
        Ok(StepOutcome::RequeueNow)
    }

    /// Records a minor version in the Machines of control-plane nodes.
    pub(in crate::reconcilers::tenant_cluster) async fn pin_minor(
        &self,
        machines: &[Machine],
        to: Minor,
    ) -> Result<(), ReconcileError> {
        let to = to.to_string();
        for machine in machines.iter().filter(|machine| machine.spec.kubernetes != to) {
            self.respecify(machine, &json!({"kubernetes": to})).await?;
        }
        Ok(())
    }

    pub(super) async fn respecify(&self, machine: &Machine, part: &serde_json::Value) -> Result<(), ReconcileError> {
        let part = json!({"metadata": {"resourceVersion": machine.metadata.resource_version}, "spec": part});
        let of = Collection::of::<Machine>(machine.namespace().as_deref());
        let written = self.objects.patch(&of, &machine.name_any(), &part).await;
        written.map(drop).attempting("noting what a control-plane node runs")
    }
}

/// Whether a Machine has this size.
fn has(machine: &Machine, size: ControlPlaneSize) -> bool {
    (machine.spec.processors, machine.spec.memory_mib) == (size.processors, size.memory_mib)
}
