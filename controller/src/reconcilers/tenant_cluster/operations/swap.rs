//! Image swaps of control-plane nodes: begins and resumes them, and records the result.

use fleet::upgrade::{Direction, Request, RunOutcome};
use kube::ResourceExt;

use super::super::{Reconciler, StepOutcome};
use super::WAITING;
use super::fleet_upgrade::{Task, UpgradeResult};
use super::tell::RESUME;
use super::translate::{options, target};
use super::upgrade_context::UpgradeContext;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{Stage, SwapProgress, is_open_swap, last_swap, outlived, pinned_size};
use crate::objects::{
    AUTO, ControlPlaneSize, NodeImage, Operation, OperationKind, OperationReason, TenantCluster, TenantClusterReason,
};
use crate::reach::{Swap, kinds};

impl Reconciler<'_> {
    /// Begins a swap. Only plans it if the cluster is paused.
    pub(super) async fn swap(
        &self,
        cluster: &TenantCluster,
        (image, size): (&NodeImage, ControlPlaneSize),
        again: Option<&str>,
        operator: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        let Some(target) = target(image) else { return Ok(StepOutcome::RequeueAfter(WAITING)) };
        // Operations of a controller that ended before it began them: nothing followed from them.
        let is_begun = |it: &Operation| it.status.as_ref().is_some_and(|status| !status.entries.is_empty());
        let all = self.operations(cluster).await?;
        for left in all.iter().filter(|it| it.spec.kind == OperationKind::ImageSwap && !is_begun(it)) {
            kinds::delete(self.objects, left).await.attempting("removing an Operation that was never begun")?;
        }
        for ended in outlived(&all) {
            kinds::delete(self.objects, ended).await.attempting("removing an Operation that has ended long ago")?;
        }
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let operator = operator.beginning(Swap {
            sizes: (pinned_size(&pinned), Some(size)),
            class: Some(cluster.spec.control_plane.vm_class.clone()).filter(|class| class != AUTO),
            from_image: pinned.image.unwrap_or_default(),
            to_image: image.name_any(),
            generation: cluster.metadata.generation.unwrap_or(1),
        });
        self.swaps(cluster, again, Task::Swap(&target, &options(cluster, Some(size))), operator).await
    }

    /// Continues a swap. `asked_of` is the Operation with the operator's request, if any.
    pub(super) async fn swaps(
        &self,
        cluster: &TenantCluster,
        asked_of: Option<&str>,
        task: Task<'_>,
        operator: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        // This request is removed if it was made. A different one that has come meanwhile is handled next.
        let word = match task {
            Task::Go(verb, _) => word_of(verb),
            Task::Swap(..) | Task::Raise(_) => RESUME,
        };
        let operations = self.operations(cluster).await?;
        let before = last_swap(&operations).map(ResourceExt::name_any);
        let had = asked_of.map(|name| length(&operations, name));
        let done = self.runs(cluster, asked_of, word, task, &operator).await?;
        let operations = self.operations(cluster).await?;
        // A swap that did not begin has no Operation: the last one is a former swap.
        let is_its = |last: &&Operation| matches!(task, Task::Go(..)) || before.as_ref() != Some(&last.name_any());
        let last = last_swap(&operations).filter(is_its);
        if let Some(last) = last {
            self.show_operation(cluster, last).await?;
            let name = last.name_any();
            self.note(cluster, &[], |status| status.operation = Some(name.clone())).await?;
        }
        let has_arrived = matches!(&done, UpgradeResult::Arrived(arrived) if *arrived != RunOutcome::Cancelled);
        let has_noted = |name: &str| match task {
            Task::Go(verb, _) => {
                let has_grown = had < Some(length(&operations, name));
                operations.iter().any(|it| it.name_any() == name && is_noted(it, verb, has_arrived, has_grown))
            }
            Task::Swap(..) | Task::Raise(_) => last.is_some(),
        };
        // A request without an entry in the journal is handled again.
        if let Some(name) = asked_of.filter(|name| has_noted(name)) {
            self.answered(cluster, name, word).await?;
        }
        Ok(match done {
            UpgradeResult::Arrived(RunOutcome::Paused(_)) => StepOutcome::RequeueAfter(WAITING),
            UpgradeResult::Failed(words) | UpgradeResult::GaveUp(words) => {
                log::warn!("{}/{}: {words}", cluster.namespace().unwrap_or_default(), cluster.name_any());
                match last.filter(is_open_swap) {
                    Some(last) => {
                        let said = [(OperationReason::Waiting, words)];
                        self.note_operation(cluster, &last.name_any(), &said, |_| ()).await?;
                    }
                    // No Operation can have the message.
                    None => self.note(cluster, &[(TenantClusterReason::Changing, words)], |_| ()).await?,
                }
                StepOutcome::RequeueAfter(WAITING)
            }
            UpgradeResult::Arrived(_) | UpgradeResult::Raised | UpgradeResult::Cancelled => StepOutcome::RequeueNow,
        })
    }
}

/// The request that this verb answers. A request to resume a planned swap is also answered by the swap that replaces it.
fn word_of(verb: Request) -> &'static str {
    match verb {
        Request::Resume | Request::Withdraw => RESUME,
        Request::Rollback | Request::RollbackAtOnce => "rollback",
        Request::Commit => "commit",
        Request::Abandon => "abandon",
    }
}

/// The number of entries in the journal of an Operation.
fn length(operations: &[Operation], name: &str) -> usize {
    let named = operations.iter().find(|operation| operation.name_any() == name);
    named.and_then(|operation| operation.status.as_ref()).map_or(0, |status| status.entries.len())
}

/// Whether the journal has the request for a swap, so that it need not be repeated. `has_arrived` is whether the run came to its
/// own end, `has_grown` whether the journal has new entries.
fn is_noted(operation: &Operation, verb: Request, has_arrived: bool, has_grown: bool) -> bool {
    let Ok(Some(swapping)) = SwapProgress::of(operation) else { return false };
    let goes = match verb {
        // A node that was rolled back stays so if the journal could not be written.
        Request::Resume => has_arrived && (has_grown || !matches!(swapping.stage, Stage::NodeIsBack(_))),
        Request::Rollback | Request::RollbackAtOnce => swapping.direction == Direction::Back && swapping.is_of_all,
        Request::Commit => swapping.direction == Direction::Commit,
        Request::Abandon => swapping.direction == Direction::Abandon,
        // The operator cannot request this: a request on the plan is for the swap that replaces it.
        Request::Withdraw => return false,
    };
    // A swap that is over answers no request.
    goes || !swapping.is_open()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture;
    use crate::records::fixture::plan;

    /// A swap whose first node was rolled back.
    fn of_node_that_is_back() -> Operation {
        let back = json!({
            "event": "direction-changed", "direction": "back", "only": 0, "code": "upgrade.asked", "reason": "it is ill",
        });
        fixture::swap(plan(), &[back])
    }

    /// The store may be unavailable when the direction is to be changed, and the run only says that it waits.
    #[test]
    fn a_retry_is_answered_after_its_journal_entry() {
        let operation = of_node_that_is_back();
        let all = [operation.clone()];
        assert_eq!((length(&all, "shop-1"), length(&all, "shop-2")), (2, 0));
        assert!(matches!(SwapProgress::of(&operation).unwrap().unwrap().stage, Stage::NodeIsBack(_)));
        for (has_arrived, has_grown) in [(false, false), (false, true), (true, false), (true, true)] {
            // Grown and back: it was tried, and is back once more.
            let noted = is_noted(&operation, Request::Resume, has_arrived, has_grown);
            assert_eq!(noted, has_arrived && has_grown, "{has_arrived} {has_grown}");
        }
    }
}
