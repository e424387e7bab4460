//! Upgrades Kubernetes: creates the Operation, runs `fleet`, and records the result. The journal is in the nodes: a repeated
//! upgrade continues.

use contract::minor::Minor;
use kube::ResourceExt;

use super::change::is_done;
use super::upgrade::{RESUME, Task, UpgradeContext, UpgradeResult, kubernetes_options};
use super::{Round, StepOutcome, WAITING};
use crate::context::ReconcileError;
use crate::decisions::{lowest_minor, operation_of, raise_name};
use crate::objects::{Machine, Operation, OperationKind, OperationReason, PlannedStep, TenantCluster};

impl Round<'_> {
    /// Upgrades control-plane nodes to a minor version of Kubernetes.
    pub(super) async fn upgrade_kubernetes(
        &self,
        to: Minor,
        again: bool,
        upgrade: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        let Self { cluster, machines, .. } = *self;
        let name = raise_name(cluster, &to.to_string());
        let made = raise_of(cluster, machines, to, &name);
        self.create_operation(&made).await?;
        let begun =
            [(OperationReason::Running, format!("to Kubernetes {to}")), (OperationReason::NotEnded, String::new())];
        self.note_operation(&name, &begun, |status| status.outcome = None).await?;
        if again {
            self.remove_request(&name, RESUME).await?;
        }
        let options = kubernetes_options(cluster, to);
        let done = match upgrade.plans_kubernetes(&options).await {
            Err(error) if is_done(&error) => UpgradeResult::Raised,
            _ => self.run_upgrade(Some(&name), RESUME, Task::Raise(&options), &upgrade).await?,
        };
        match done {
            UpgradeResult::Raised => {
                self.pin_minor(machines, to).await?;
                let (done, steps) = ((OperationReason::Done, String::new()), made.spec.steps.len());
                self.end_operation(Some(&name), "done", done, steps).await?;
                Ok(StepOutcome::RequeueNow)
            }
            UpgradeResult::GaveUp(words) => {
                let words = format!("{words}. Say with kaas.local/do `resume` to try it again, or `abandon`");
                self.note_operation(&name, &[(OperationReason::Blocked, words)], |_| ()).await?;
                Ok(StepOutcome::RequeueNow)
            }
            UpgradeResult::Failed(words) => {
                self.note_operation(&name, &[(OperationReason::Waiting, words)], |_| ()).await?;
                Ok(StepOutcome::RequeueAfter(WAITING))
            }
            UpgradeResult::Arrived(_) | UpgradeResult::Cancelled => Ok(StepOutcome::RequeueNow),
        }
    }
}

/// The Operation that upgrades control-plane nodes to a minor version.
fn raise_of(cluster: &TenantCluster, machines: &[Machine], to: Minor, name: &str) -> Operation {
    let node = |machine: &Machine| PlannedStep { action: "kubernetes".to_owned(), node: Some(machine.name_any()) };
    let snapshot = PlannedStep { action: "snapshot".to_owned(), node: None };
    let from = lowest_minor(machines).map(|minor| minor.to_string());
    let steps = std::iter::once(snapshot).chain(machines.iter().map(node)).collect();
    let mut operation = operation_of(cluster, name, OperationKind::KubernetesUpgrade, steps);
    (operation.spec.from_version, operation.spec.to_version) = (from, Some(to.to_string()));
    operation
}
