//! The progress of an image swap, from the plan and the journal of its Operation. Pure: `fleet` decides the next step.

use fleet::upgrade::{Action, Direction, Entry, Next, Outcome, Plan, Progress, Step, before_kubernetes, before_swap};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use crate::objects::{ControlPlaneSize, Operation, OperationKind, OperationReason, OperationStatus};
use crate::records::{Mismatch, entry_of};

/// How long the health of control-plane nodes may be unobserved without being lost, in seconds; and how often an observation is
/// recorded.
const UNSEEN: i64 = 120;
const NOTED: i64 = 60;

/// Since when all control-plane nodes are healthy, and when that was last observed, given that they are healthy now. A longer
/// time without observation starts again.
pub fn health_times(before: &OperationStatus, now: &Time) -> (Time, Time) {
    let ago = |time: &Time| now.0.as_second() - time.0.as_second();
    match (&before.healthy_since, &before.last_healthy) {
        // After a clock was set back, the time is unknown too.
        (Some(since), Some(seen)) if (-UNSEEN..=UNSEEN).contains(&ago(seen)) => {
            let seen = if ago(seen) < NOTED { seen } else { now };
            (since.clone(), seen.clone())
        }
        _ => (now.clone(), now.clone()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapProgress {
    /// UUID of its plan.
    pub id: Uuid,
    pub stage: Stage,
    pub direction: Direction,
    /// Whether all nodes go in this direction, not a single one.
    pub is_of_all: bool,
    /// Whether a node's swap may have been committed: no rollback is possible then.
    pub is_final: bool,
    /// Whether a control-plane node is off, shutting down or not healthy yet while the swap goes forward. The swap cannot pause
    /// there.
    pub is_away: bool,
    /// Whether no step of any node began, except leaving it as it is. Then it ends without a change, in any direction.
    pub is_untouched: bool,
    /// Whether the controller has ended it before its first step, so that another plan can replace it. It counts as no failure.
    pub is_withdrawn: bool,
    /// Why it waits; otherwise why its direction changed.
    pub why: Option<String>,
    /// Whether `why` is the reason of a wait.
    pub waits: bool,
    /// The current or next step, in words.
    pub step: Option<String>,
    /// How many steps of its direction are done.
    pub done: usize,
    /// SHA-256 of its image, in hexadecimal.
    pub digest: String,
    /// The new size of nodes. `None` if each VM keeps the former one's size.
    pub size: Option<ControlPlaneSize>,
    /// Whether the result is in the cluster's resolved values. After an abandoned swap: whether all nodes were seen to match
    /// these since.
    pub is_pinned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Steps are left.
    Goes,
    /// This node is back on its former image, the others stay where they are. The operator decides.
    NodeIsBack(String),
    /// All nodes run the new image, and a rollback is still possible.
    Upgraded,
    Ended(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Committed,
    RolledBack,
    /// The operator has ended it where it was.
    Abandoned,
}

impl Ending {
    /// The word in `status.outcome`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Abandoned => "abandoned",
        }
    }

    /// The reason of a condition.
    pub fn reason(self) -> OperationReason {
        match self {
            Self::Committed => OperationReason::Done,
            Self::RolledBack => OperationReason::RolledBack,
            Self::Abandoned => OperationReason::Abandoned,
        }
    }
}

impl SwapProgress {
    /// The progress of an Operation's swap. `None` if it never began.
    pub fn of(operation: &Operation) -> Result<Option<Self>, Mismatch> {
        let Some(status) = operation.status.as_ref().filter(|status| !status.entries.is_empty()) else {
            return Ok(None);
        };
        let kept = operation.spec.plan.as_ref();
        let entries: Vec<Entry> = status.entries.iter().map(|entry| entry_of(entry, kept)).collect::<Result<_, _>>()?;
        let plan = entries.iter().find_map(|entry| match &entry.event {
            fleet::upgrade::Event::Planned { plan } => Some(plan),
            _ => None,
        });
        let by = |plan| Self { is_pinned: status.resolved_updated, ..Self::by(plan, &Progress::of(plan, &entries)) };
        Ok(plan.map(|plan| by(plan)))
    }

    fn by(plan: &Plan, progress: &Progress) -> Self {
        let name = |node: usize| plan.nodes.get(node).map(|node| node.name.clone()).unwrap_or_default();
        let (stage, step) = match progress.next(plan) {
            Next::Take { step, .. } => (Stage::Goes, Some(words(plan, step))),
            Next::End(_) => (Stage::Goes, Some("ending".to_owned())),
            Next::NodeIsBack(node) => {
                (Stage::NodeIsBack(name(node)), Some(format!("{} is back on its image", name(node))))
            }
            Next::Ended(Outcome::Upgraded) => (Stage::Upgraded, Some("waiting for the commit".to_owned())),
            Next::Ended(Outcome::Committed) => (Stage::Ended(Ending::Committed), None),
            Next::Ended(Outcome::RolledBack) => (Stage::Ended(Ending::RolledBack), None),
            Next::Ended(Outcome::Abandoned) => (Stage::Ended(Ending::Abandoned), None),
        };
        let waits = progress.paused.is_some();
        Self {
            id: plan.id,
            stage,
            direction: progress.direction,
            is_of_all: progress.only.is_none(),
            is_final: progress.is_final(),
            is_away: is_away(plan, progress),
            is_untouched: progress.is_untouched(),
            is_withdrawn: progress.is_withdrawn(),
            why: progress.paused.as_ref().or(progress.reason.as_ref()).map(ToString::to_string),
            waits,
            step,
            done: progress.count(plan).0,
            digest: plan.target.digest.clone(),
            size: plan.options.size.and_then(ControlPlaneSize::of),
            is_pinned: false,
        }
    }

    pub fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Ended(_))
    }

    /// Whether it is only a plan, which begins when it continues: no VM was created for it, or those were deleted again.
    pub fn is_planned(&self) -> bool {
        let is_ahead = match &self.stage {
            Stage::Goes => self.direction == Direction::Forward,
            Stage::NodeIsBack(_) => true,
            Stage::Upgraded | Stage::Ended(_) => false,
        };
        self.is_untouched && is_ahead
    }

    /// Whether a node may be in a VM of the new size now, or return to the former one. This is so after a node's first step while
    /// a rollback is possible, or the end is not recorded yet. A plan that is rolled back before its first step never took room.
    pub fn moves(&self) -> bool {
        match self.ending() {
            None => !self.is_untouched,
            Some(Ending::Committed) => !self.is_pinned,
            Some(Ending::RolledBack | Ending::Abandoned) => false,
        }
    }

    pub fn ending(&self) -> Option<Ending> {
        if let Stage::Ended(ending) = self.stage { Some(ending) } else { None }
    }

    pub fn reasons(&self) -> [(OperationReason, String); 2] {
        use OperationReason::{AwaitingCommit, Blocked, Ended, NotEnded, RollingBack, Running, Waiting};
        let why = self.why.clone().unwrap_or_default();
        let step = self.step.clone().unwrap_or_default();
        let progressing = match &self.stage {
            Stage::Ended(ending) => (Ended, ending.words().to_owned()),
            Stage::Upgraded => (AwaitingCommit, String::new()),
            Stage::NodeIsBack(node) => (
                Blocked,
                format!(
                    "{node} was not healthy on the new image and is back on the former one: {why}. Set kaas.local/do to \
                     `resume` to try it again, `rollback` to roll back all nodes, or `abandon`"
                ),
            ),
            Stage::Goes if self.waits => (Waiting, format!("{step}: {why}")),
            Stage::Goes if self.direction == Direction::Back => (RollingBack, format!("{step}: {why}")),
            Stage::Goes => (Running, step),
        };
        let succeeded = match self.ending() {
            Some(Ending::Committed) => (OperationReason::Done, String::new()),
            Some(ending) => (ending.reason(), why),
            None => (NotEnded, String::new()),
        };
        [progressing, succeeded]
    }
}

/// Whether a control-plane node is being shut down, or was and is not healthy yet, while the swap goes forward. A guest shuts
/// down even if the controller does not record it. [`Progress::is_away`] differs: for it the node is present until the shutdown
/// is recorded.
fn is_away(plan: &Plan, progress: &Progress) -> bool {
    let is_away = |node: usize| {
        let (off, good) = (Step::of(Action::ShutDown, node), Step::of(Action::Gate, node));
        progress.is_begun(off) && !progress.is_done(good)
    };
    progress.direction == Direction::Forward && (0..plan.nodes.len()).any(is_away)
}

/// The last swap whose journal has begun.
pub fn last_swap(operations: &[Operation]) -> Option<&Operation> {
    let begun = |operation: &&Operation| {
        let status = operation.status.as_ref();
        operation.spec.kind == OperationKind::ImageSwap && status.is_some_and(|status| !status.entries.is_empty())
    };
    operations.iter().filter(begun).max_by_key(|operation| operation.status.as_ref().map(|status| status.lease))
}

pub fn is_open_swap(operation: &&Operation) -> bool {
    matches!(SwapProgress::of(operation), Ok(Some(swapping)) if swapping.is_open())
}

/// How many ended swaps of a cluster are kept.
const KEPT: usize = 10;

/// The swaps to delete: ended ones, except the last `KEPT`. The last one decides the next step, and each contains a plan. Swaps
/// that are open or not understood stay, and one after which control-plane nodes may differ. Upgrades of Kubernetes stay too:
/// there is one for each minor version.
pub fn outlived(operations: &[Operation]) -> Vec<&Operation> {
    let is_over = |operation: &&Operation| {
        operation.spec.kind == OperationKind::ImageSwap
            && operation.metadata.deletion_timestamp.is_none()
            && matches!(SwapProgress::of(operation), Ok(Some(swapping)) if !swapping.is_open())
    };
    let mut ended: Vec<&Operation> = operations.iter().filter(is_over).collect();
    ended.sort_by_key(|operation| last_first(operation));
    let unsettled = unsettled(operations).and_then(|(operation, _)| operation.metadata.name.as_ref());
    let mut outlived = ended.split_off(KEPT.min(ended.len()));
    outlived.retain(|operation| unsettled.is_none() || operation.metadata.name.as_ref() != unsettled);
    outlived
}

/// Sort key of swaps whose journal has begun: the last one first.
fn last_first(operation: &Operation) -> std::cmp::Reverse<Option<u64>> {
    std::cmp::Reverse(operation.status.as_ref().map(|status| status.lease))
}

/// The last abandoned swap, as long as nothing proves that all control-plane nodes are alike again. Proof is a later committed
/// swap or the nodes themselves. Some nodes may keep its image and size, even after later rollbacks.
pub fn unsettled(operations: &[Operation]) -> Option<(&Operation, SwapProgress)> {
    let mut swaps: Vec<&Operation> = operations.iter().filter(|it| it.spec.kind == OperationKind::ImageSwap).collect();
    swaps.sort_by_key(|operation| last_first(operation));
    let mut swaps = swaps.into_iter().filter_map(|operation| Some((operation, SwapProgress::of(operation).ok()??)));
    let last = swaps.find(|(_, swapping)| matches!(swapping.ending(), Some(Ending::Committed | Ending::Abandoned)));
    last.filter(|(_, swapping)| swapping.ending() == Some(Ending::Abandoned) && !swapping.is_pinned)
}

/// Whether a snapshot from before a cluster's Operations may still be needed. It is needed while an Operation is under way, or
/// control-plane nodes may differ after an abandoned one. An abandoned upgrade of Kubernetes can be resumed at any time. It
/// counts as long as its own snapshot exists: without it, no rollback is possible, and later snapshots belong to other
/// Operations.
pub fn may_go_back(operations: &[Operation], is_kept: impl Fn(&str) -> bool) -> bool {
    let counts = |operation: &&Operation| {
        !is_left_half_raised(operation) || own_file(operation).is_some_and(|file| is_kept(&file))
    };
    operations.iter().filter(counts).any(is_under_way) || unsettled(operations).is_some()
}

/// Whether the operator has abandoned an upgrade of Kubernetes.
fn is_left_half_raised(operation: &Operation) -> bool {
    let noted = operation.status.as_ref().and_then(|status| status.outcome.as_deref());
    operation.spec.kind == OperationKind::KubernetesUpgrade && noted == Some(Ending::Abandoned.words())
}

/// Whether an Operation has begun and not ended for good. An abandoned upgrade of Kubernetes has not ended: some nodes may have
/// the next minor version, and `resume` continues with the others. If an Operation is not understood, its outcome counts.
fn is_under_way(operation: &Operation) -> bool {
    match (operation.spec.kind, SwapProgress::of(operation)) {
        // Settings do not depend on a snapshot, and the replacement of a node has no rollback.
        (OperationKind::Configure | OperationKind::ReplaceNode, _) => false,
        (OperationKind::ImageSwap, Ok(swapping)) => swapping.is_some_and(|swapping| swapping.is_open()),
        (OperationKind::ImageSwap, Err(_)) | (OperationKind::KubernetesUpgrade, _) => !is_over(operation),
    }
}

/// Whether a file of this name is the snapshot of an Operation that has ended for good.
pub fn is_done_with(operation: &Operation, file: &str) -> bool {
    own_file(operation).as_deref() == Some(file) && is_over(operation)
}

/// The file name of the snapshot from before an Operation. `None` if its plan has no ID.
fn own_file(operation: &Operation) -> Option<String> {
    let spec = &operation.spec;
    match spec.kind {
        OperationKind::ImageSwap => {
            let plan = spec.plan.as_ref().and_then(|plan| plan["id"].as_str()?.parse::<Uuid>().ok());
            plan.map(before_swap)
        }
        OperationKind::KubernetesUpgrade => spec.to_version.as_deref().map(before_kubernetes),
        OperationKind::Configure | OperationKind::ReplaceNode => None,
    }
}

/// Whether all control-plane nodes have the Operation's result, or their former state.
fn is_over(operation: &Operation) -> bool {
    let noted = operation.status.as_ref().and_then(|status| status.outcome.as_deref());
    match operation.spec.kind {
        OperationKind::KubernetesUpgrade | OperationKind::ReplaceNode => noted == Some("done"),
        OperationKind::Configure => noted.is_some(),
        OperationKind::ImageSwap => match SwapProgress::of(operation) {
            Ok(swapping) => {
                matches!(swapping.and_then(|swapping| swapping.ending()), Some(Ending::Committed | Ending::RolledBack))
            }
            Err(_) => [Ending::Committed, Ending::RolledBack].into_iter().any(|ending| noted == Some(ending.words())),
        },
    }
}

/// Whether a swap has the current image, and so changes only the size.
pub(super) fn is_of_size(operation: &Operation) -> bool {
    operation.spec.from_image == operation.spec.to_image
}

/// The image and size of all control-plane nodes after a swap, in words.
pub(super) fn goal(operation: &Operation, swapping: &SwapProgress) -> String {
    let image = operation.spec.to_image.as_deref().unwrap_or_default();
    match swapping.size.filter(|_| is_of_size(operation)) {
        Some(size) => format!("{image} with {size}"),
        None => image.to_owned(),
    }
}

/// A step in words: as in the Operation's spec.
pub fn words(plan: &Plan, step: Step) -> String {
    let action = serde_json::to_value(step.action).ok().and_then(|action| action.as_str().map(str::to_owned));
    let action = action.unwrap_or_default();
    match step.node.and_then(|node| plan.nodes.get(node)) {
        Some(node) => format!("{action} {}", node.name),
        None => action,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use serde_json::json;

    use super::super::change::tests::{ended, swap, turned};
    use super::super::fixture::now;
    use super::*;

    #[test]
    fn operation_is_under_way_until_its_final_end() {
        let never_begun = Operation { status: None, ..swap(&[]) };
        let back = json!({
            "event": "direction-changed", "direction": "back", "only": 0, "code": "upgrade.asked", "reason": "it is ill",
        });
        let again = [ended("upgraded"), vec![turned("back")]].concat();
        for (operation, is_so) in [
            (never_begun, false),
            (swap(&[]), true),
            (swap(&[back]), true),
            (swap(&ended("upgraded")), true),
            (swap(&again), true),
            (swap(&[ended("upgraded"), ended("committed")].concat()), false),
            (swap(&[again, ended("rolled-back")].concat()), false),
            (swap(&ended("abandoned")), false),
        ] {
            assert_eq!(is_under_way(&operation), is_so, "{:?}", operation.status);
        }
        let mut unknown = swap(&[]);
        let of_later = json!({"at": 1, "lease": 1, "event": "dreamt"});
        unknown.status.as_mut().unwrap().entries.push(serde_json::from_value(of_later).unwrap());
        let mut raise = swap(&[]);
        raise.spec.kind = OperationKind::KubernetesUpgrade;
        for (mut operation, end) in [(unknown, "committed"), (raise, "done")] {
            for (outcome, is_so) in [(None, true), (Some("abandoned"), true), (Some(end), false)] {
                operation.status.as_mut().unwrap().outcome = outcome.map(str::to_owned);
                assert_eq!(is_under_way(&operation), is_so, "{outcome:?} of {:?}", operation.spec.kind);
            }
        }
    }

    #[test]
    fn snapshot_is_kept_until_all_nodes_are_alike() {
        let mut abandoned = swap(&ended("abandoned"));
        assert!(may_go_back(std::slice::from_ref(&abandoned), |_| false));
        let mut committed = swap(&[ended("upgraded"), ended("committed")].concat());
        committed.status.as_mut().unwrap().lease = 2;
        assert!(!may_go_back(&[abandoned.clone(), committed], |_| true), "one was committed since");
        abandoned.status.as_mut().unwrap().resolved_updated = true;
        assert!(!may_go_back(&[abandoned], |_| true), "they were found to be alike");
        let mut raise = swap(&[]);
        (raise.spec.kind, raise.spec.to_version) = (OperationKind::KubernetesUpgrade, Some("1.37".to_owned()));
        for (outcome, file, is_so) in [
            (None, "before-kubernetes-1.36.db", true),
            (Some("abandoned"), "before-kubernetes-1.37.db", true),
            (Some("abandoned"), "before-kubernetes-1.36.db", false),
            (Some("done"), "before-kubernetes-1.37.db", false),
        ] {
            raise.status.as_mut().unwrap().outcome = outcome.map(str::to_owned);
            let may = may_go_back(std::slice::from_ref(&raise), |own| own == file);
            assert_eq!(may, is_so, "{outcome:?} beside {file}");
        }
    }

    #[test]
    fn ended_operation_releases_its_own_snapshot() {
        let committed = swap(&[ended("upgraded"), ended("committed")].concat());
        let own = before_swap(Uuid::from_u128(5));
        assert!(is_done_with(&committed, &own));
        assert!(!is_done_with(&committed, &before_swap(Uuid::from_u128(6))), "another one's");
        for unfinished in [swap(&ended("upgraded")), swap(&ended("abandoned"))] {
            assert!(!is_done_with(&unfinished, &own), "{:?}", unfinished.status);
        }
        let mut raise = swap(&[]);
        (raise.spec.kind, raise.spec.to_version) = (OperationKind::KubernetesUpgrade, Some("1.37".to_owned()));
        for (outcome, is_so) in [(None, false), (Some("abandoned"), false), (Some("done"), true)] {
            raise.status.as_mut().unwrap().outcome = outcome.map(str::to_owned);
            assert_eq!(is_done_with(&raise, "before-kubernetes-1.37.db"), is_so, "{outcome:?}");
        }
        assert!(!is_done_with(&raise, "before-kubernetes-1.36.db"));
    }

    #[test]
    fn healthy_time_counts_only_while_observed() {
        let ago = |seconds: i64| Time(Timestamp::from_second(now().0.as_second() - seconds).unwrap());
        let of = |since: Option<i64>, seen: Option<i64>| {
            let (good_since, good_seen) = (since.map(ago), seen.map(ago));
            health_times(
                &OperationStatus { healthy_since: good_since, last_healthy: good_seen, ..OperationStatus::default() },
                &now(),
            )
        };
        let anew = (now(), now());
        assert_eq!(of(None, None), anew);
        assert_eq!(of(Some(500), Some(59)), (ago(500), ago(59)), "it is noted once a minute");
        assert_eq!(of(Some(500), Some(60)), (ago(500), now()));
        assert_eq!(of(Some(500), Some(120)), (ago(500), now()));
        assert_eq!(of(Some(500), Some(121)), anew, "nobody has looked");
        assert_eq!(of(Some(500), Some(-121)), anew, "the clock was set back");
        assert_eq!(of(Some(500), None), anew, "another version has noted it");
    }
}
