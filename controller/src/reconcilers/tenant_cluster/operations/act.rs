//! Carries out a decided change.

use super::super::{Reconciler, StepOutcome};
use super::WAITING;
use super::decide::ChangeDecision;
use super::fleet_upgrade::Task;
use super::upgrade_context::UpgradeContext;
use crate::context::ReconcileError;
use crate::decisions::{Change, blocked};
use crate::objects::{Machine, OperationKind, OperationReason, TenantCluster};

impl Reconciler<'_> {
    pub(in crate::reconcilers::tenant_cluster) async fn operate(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        changing: &ChangeDecision,
        operator: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        match &changing.change {
            Change::Nothing | Change::Blocked(_) | Change::Waits(..) | Change::Judge(..) => {
                Ok(StepOutcome::RequeueAfter(WAITING))
            }
            Change::Show(name) => {
                if let Some(operation) = self.operation(cluster, name).await? {
                    self.show_operation(cluster, &operation).await?;
                }
                Ok(StepOutcome::RequeueNow)
            }
            Change::Answer(name, refused) => {
                if let Some(words) = refused {
                    let operation = self.operation(cluster, name).await?;
                    let raises = operation.filter(|it| it.spec.kind == OperationKind::KubernetesUpgrade);
                    let said = match raises.as_ref().and_then(blocked) {
                        // A blocked upgrade is not resumed by itself, and no other condition says so.
                        Some(why) => (OperationReason::Blocked, format!("{why} ({words})")),
                        None => (OperationReason::Rejected, words.clone()),
                    };
                    self.note_operation(cluster, name, &[said], |_| ()).await?;
                }
                self.take_away(cluster, name).await?;
                Ok(StepOutcome::RequeueNow)
            }
            Change::Pin(resolved, of) => self.pin(cluster, machines, resolved, of.as_deref()).await,
            Change::Swap(image, again, size) => self.swap(cluster, (image, *size), again.as_deref(), operator).await,
            Change::Go(name, verb) => {
                let Some((_, swapping)) = &changing.swap else { return Ok(StepOutcome::RequeueNow) };
                self.swaps(cluster, Some(name), Task::Go(*verb, swapping.id), operator).await
            }
            Change::Raise(to, again) => self.raise(cluster, machines, *to, again.is_some(), operator).await,
            Change::Abandon(name) => {
                let said = [
                    (OperationReason::Ended, "abandoned".to_owned()),
                    (OperationReason::Abandoned, "the operator has asked for it".to_owned()),
                ];
                let outcome = "abandoned".to_owned();
                self.note_operation(cluster, name, &said, |status| status.outcome = Some(outcome.clone())).await?;
                self.take_away(cluster, name).await?;
                Ok(StepOutcome::RequeueNow)
            }
        }
    }
}
