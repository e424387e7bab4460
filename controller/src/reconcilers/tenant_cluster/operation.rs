//! Reads Operations and writes their status: their progress, and what they wait for. The operator puts a request on an Operation,
//! and it is removed once its result is recorded.

use fleet::control_plane::DeployStatus;
use fleet::hypervisor::PowerState;
use kube::ResourceExt;

use super::change::ChangeDecision;
use super::{Reconciler, Round};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{CLUSTER_REF, Stage, SwapProgress, asked, swap_reasons};
use crate::objects::{DO, Operation, OperationKind, OperationReason, OperationStatus, Reason as _, TenantCluster, set};
use crate::reach::{Failure, kinds};

impl Reconciler<'_> {
    pub(super) async fn operations(&self, cluster: &TenantCluster) -> Result<Vec<Operation>, ReconcileError> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let all = kinds::list::<Operation>(self.objects, namespace.as_deref(), Some((CLUSTER_REF, &name))).await;
        all.attempting("looking for the cluster's Operations")
    }
}

impl Round<'_> {
    /// The Operation of this name. `None` if it does not exist.
    pub(super) async fn operation(&self, name: &str) -> Result<Option<Operation>, ReconcileError> {
        let found = kinds::find::<Operation>(self.objects, self.cluster.namespace().as_deref(), name).await;
        found.attempting("reading an Operation")
    }

    /// Creates an Operation unless it exists, and names it in the status of the cluster.
    pub(super) async fn create_operation(&self, made: &Operation) -> Result<(), ReconcileError> {
        match kinds::create(self.objects, made).await {
            Ok(_) | Err(Failure::Exists) => {}
            Err(failure) => return Err(failure).attempting("making an Operation"),
        }
        self.note(self.cluster, &[], |status| status.operation = Some(made.name_any())).await
    }

    /// Writes conditions and other changes of an Operation's status. Without a change there is no request.
    pub(super) async fn note_operation(
        &self,
        name: &str,
        said: &[(OperationReason, String)],
        change: impl Fn(&mut OperationStatus),
    ) -> Result<(), ReconcileError> {
        const TRIES: usize = 10;
        for attempt in 1.. {
            let Some(operation) = self.operation(name).await? else { return Ok(()) };
            let mut status = operation.status.clone().unwrap_or_default();
            change(&mut status);
            let generation = operation.metadata.generation.unwrap_or_default();
            for (reason, words) in said {
                set(&mut status.conditions, *reason, words, generation, &self.clock.time());
                if reason.condition() == OperationReason::Done.condition() {
                    status.observed_cluster_generation = self.cluster.metadata.generation;
                }
            }
            match kinds::note(self.objects, &operation, operation.status.as_ref(), &status).await {
                Err(Failure::Changed) if attempt < TRIES => {}
                Err(Failure::Missing) => return Ok(()),
                written => return written.map(drop).attempting("writing an Operation's status"),
            }
        }
        Ok(())
    }

    /// Ends an Operation, if one is open, after so many steps.
    pub(super) async fn end_operation(
        &self,
        operation: Option<&str>,
        outcome: &str,
        succeeded: (OperationReason, String),
        done: usize,
    ) -> Result<(), ReconcileError> {
        let Some(name) = operation else { return Ok(()) };
        let done = i32::try_from(done).unwrap_or(i32::MAX);
        let said = [(OperationReason::Ended, outcome.to_owned()), succeeded];
        self.note_operation(name, &said, |status| {
            (status.step, status.steps_done, status.outcome) = (None, done, Some(outcome.to_owned()));
        })
        .await
    }

    /// Writes the progress of a swap; or, for an upgrade of Kubernetes, that it is paused.
    pub(super) async fn show_operation(&self, operation: &Operation) -> Result<(), ReconcileError> {
        let rest = self.pause_reason(self.cluster).await?;
        if let Some(rest) = rest.as_ref().filter(|_| operation.spec.kind == OperationKind::KubernetesUpgrade) {
            // A running upgrade of Kubernetes on a node cannot be paused.
            let said = [(rest.reason(), "a node that has begun the upgrade completes it or fails".to_owned())];
            return self.note_operation(&operation.name_any(), &said, |_| ()).await;
        }
        let Ok(Some(swapping)) = SwapProgress::of(operation) else { return Ok(()) };
        let outcome = swapping.ending().map(|ending| ending.words().to_owned());
        let done = i32::try_from(swapping.done).unwrap_or(i32::MAX);
        self.note_operation(&operation.name_any(), &swap_reasons(rest.as_ref(), &swapping), |status| {
            (status.steps_done, status.step, status.outcome) = (done, swapping.step.clone(), outcome.clone());
            if swapping.stage != Stage::Upgraded {
                (status.healthy_since, status.last_healthy) = (None, None);
            }
        })
        .await
    }

    /// Writes why a planned swap cannot begin: no run would do it.
    pub(super) async fn report_wait(&self, decision: &ChangeDecision) -> Result<(), ReconcileError> {
        let planned = decision.swap.as_ref().filter(|_| decision.is_held_up());
        let Some(((name, _), obstacle)) = planned.zip(decision.change.obstacle()) else { return Ok(()) };
        let said = [(OperationReason::Waiting, obstacle.message.clone())];
        self.note_operation(name, &said, |_| ()).await
    }

    /// Writes that a planned swap waits for control-plane nodes which are being powered on: no run would do it.
    pub(super) async fn report_powered_off(
        &self,
        decision: &ChangeDecision,
        seen: &DeployStatus,
    ) -> Result<(), ReconcileError> {
        let Some(plan) = decision.plan() else { return Ok(()) };
        let off = seen.nodes.iter().filter(|node| node.power == Some(PowerState::Off));
        let off = off.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let said =
            [(OperationReason::Waiting, format!("powered off, and powered on before anything of it begins: {off}"))];
        self.note_operation(plan, &said, |_| ()).await
    }

    /// Removes this request of the operator from an Operation. A different one that has come meanwhile stays.
    pub(super) async fn remove_request(&self, name: &str, word: &str) -> Result<(), ReconcileError> {
        let operation = self.operation(name).await?.filter(|operation| asked(operation) == Some(word));
        let Some(operation) = operation else { return Ok(()) };
        let removed = kinds::remove_annotation(self.objects, &operation, DO).await;
        removed.attempting("taking away what was asked of an Operation")
    }

    pub(super) async fn remove_any_request(&self, name: &str) -> Result<(), ReconcileError> {
        match self.operation(name).await?.as_ref().and_then(asked) {
            Some(word) => self.remove_request(name, word).await,
            None => Ok(()),
        }
    }
}
