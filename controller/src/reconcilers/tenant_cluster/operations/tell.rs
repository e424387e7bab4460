//! Writes the status of Operations: their progress, what they wait for, and since when control-plane nodes are healthy before a
//! commit. Removes the operator's requests once they are answered.

use fleet::control_plane::DeployStatus;
use fleet::hypervisor::PowerState;
use kube::ResourceExt;

use super::super::Reconciler;
use super::decide::ChangeDecision;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{CLUSTER_REF, Stage, SwapProgress, asked, health_times, swap_reasons};
use crate::objects::{DO, Machine, Operation, OperationKind, OperationReason, OperationStatus, TenantCluster, set};
use crate::reach::{Failure, kinds};

/// The request to try again.
pub(super) const RESUME: &str = "resume";

impl Reconciler<'_> {
    pub(in crate::reconcilers::tenant_cluster) async fn operations(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Vec<Operation>, ReconcileError> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let all = kinds::list::<Operation>(self.objects, namespace.as_deref(), Some((CLUSTER_REF, &name))).await;
        all.attempting("looking for the cluster's Operations")
    }

    /// The Operation of this name. `None` if it does not exist.
    pub(super) async fn operation(
        &self,
        cluster: &TenantCluster,
        name: &str,
    ) -> Result<Option<Operation>, ReconcileError> {
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        found.attempting("reading an Operation")
    }

    /// Writes conditions and other changes of an Operation's status. Without a change there is no request.
    pub(in crate::reconcilers::tenant_cluster) async fn note_operation(
        &self,
        cluster: &TenantCluster,
        name: &str,
        said: &[(OperationReason, String)],
        change: impl Fn(&mut OperationStatus),
    ) -> Result<(), ReconcileError> {
        const TRIES: usize = 10;
        const ATTEMPT: &str = "writing an Operation's status";
        for attempt in 1.. {
            let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
            let Some(operation) = found.attempting(ATTEMPT)? else { return Ok(()) };
            let mut status = operation.status.clone().unwrap_or_default();
            change(&mut status);
            // The spec of an Operation never changes: the generation is that of the cluster.
            let generation = cluster.metadata.generation.unwrap_or_default();
            for (reason, words) in said {
                set(&mut status.conditions, *reason, words, generation, &self.clock.time());
            }
            match kinds::note(self.objects, &operation, operation.status.as_ref(), &status).await {
                Err(Failure::Changed) if attempt < TRIES => {}
                Err(Failure::Missing) => return Ok(()),
                written => return written.map(drop).attempting(ATTEMPT),
            }
        }
        Ok(())
    }

    /// Writes the progress of a swap; or, for an upgrade of Kubernetes, that it is paused.
    pub(super) async fn show_operation(
        &self,
        cluster: &TenantCluster,
        operation: &Operation,
    ) -> Result<(), ReconcileError> {
        let rest = self.rest(cluster).await?;
        if let Some(rest) = rest.as_ref().filter(|_| operation.spec.kind == OperationKind::KubernetesUpgrade) {
            // A running upgrade of Kubernetes on a node cannot be paused.
            let said = [(rest.reason(), "a node that was asked before goes to it by itself, or gives up".to_owned())];
            return self.note_operation(cluster, &operation.name_any(), &said, |_| ()).await;
        }
        let Ok(Some(swapping)) = SwapProgress::of(operation) else { return Ok(()) };
        let outcome = swapping.ending().map(|ending| ending.words().to_owned());
        let done = i32::try_from(swapping.done).unwrap_or(i32::MAX);
        self.note_operation(cluster, &operation.name_any(), &swap_reasons(rest.as_ref(), &swapping), |status| {
            (status.steps_done, status.step, status.outcome) = (done, swapping.step.clone(), outcome.clone());
            if swapping.stage != Stage::Upgraded {
                (status.healthy_since, status.last_healthy) = (None, None);
            }
        })
        .await
    }

    /// Writes why a planned swap cannot begin: no run would do it.
    pub(in crate::reconcilers::tenant_cluster) async fn says_what_waits(
        &self,
        cluster: &TenantCluster,
        changing: &ChangeDecision,
    ) -> Result<(), ReconcileError> {
        let planned = changing.swap.as_ref().filter(|_| changing.is_held_up());
        let Some(((name, _), obstacle)) = planned.zip(changing.change.obstacle()) else { return Ok(()) };
        let said = [(OperationReason::Waiting, obstacle.message.clone())];
        self.note_operation(cluster, name, &said, |_| ()).await
    }

    /// Writes that a planned swap waits for control-plane nodes which are being powered on: no run would do it.
    pub(in crate::reconcilers::tenant_cluster) async fn says_what_is_off(
        &self,
        cluster: &TenantCluster,
        changing: &ChangeDecision,
        seen: &DeployStatus,
    ) -> Result<(), ReconcileError> {
        let Some(plan) = changing.plan() else { return Ok(()) };
        let off = seen.nodes.iter().filter(|node| node.power == Some(PowerState::Off));
        let off = off.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let said =
            [(OperationReason::Waiting, format!("powered off, and powered on before anything of it begins: {off}"))];
        self.note_operation(cluster, plan, &said, |_| ()).await
    }

    /// Records since when all control-plane nodes are healthy on the new image, as long as the operator may roll back, or removes
    /// the record. Decides again with it. Nothing else is read again.
    pub(in crate::reconcilers::tenant_cluster) async fn counts_good(
        &self,
        cluster: &TenantCluster,
        changing: ChangeDecision,
        machines: &[Machine],
        are_good: bool,
    ) -> Result<ChangeDecision, ReconcileError> {
        let Some((name, swapping)) = &changing.swap else { return Ok(changing) };
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        let Some(operation) = found.attempting("reading an Operation")? else { return Ok(changing) };
        let before = operation.status.unwrap_or_default();
        // While it is paused requests are rejected: the operator gets the whole time afterwards.
        let rests = changing.rests();
        let is_counted = are_good && swapping.stage == Stage::Upgraded && !rests;
        let (since, seen) = is_counted.then(|| health_times(&before, &self.clock.time())).unzip();
        if since == before.healthy_since && seen == before.last_healthy {
            return Ok(changing);
        }
        self.note_operation(cluster, name, &[], |status| {
            (status.healthy_since, status.last_healthy) = (since.clone(), seen.clone());
        })
        .await?;
        Ok(changing.with_good(cluster, machines, (since, seen), self.clock.time().0))
    }

    /// Removes the operator's request from an Operation, if it is still this one.
    pub(super) async fn answered(&self, cluster: &TenantCluster, name: &str, word: &str) -> Result<(), ReconcileError> {
        const ATTEMPT: &str = "taking away what was asked of an Operation";
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        let Some(operation) = found.attempting(ATTEMPT)?.filter(|operation| asked(operation) == Some(word)) else {
            return Ok(());
        };
        kinds::remove_annotation(self.objects, &operation, DO).await.attempting(ATTEMPT)
    }

    /// Removes any request from an Operation.
    pub(super) async fn take_away(&self, cluster: &TenantCluster, name: &str) -> Result<(), ReconcileError> {
        match self.operation(cluster, name).await?.as_ref().and_then(asked) {
            Some(word) => self.answered(cluster, name, word).await,
            None => Ok(()),
        }
    }
}
