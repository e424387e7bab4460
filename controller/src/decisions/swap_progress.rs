//! How far a swap of control nodes is, by the plan and the journal that its Operation has. Pure: `fleet` says what comes next in it.

use fleet::upgrade::{Action, Direction, Entry, Next, Outcome, Plan, Progress, Step, before_kubernetes, before_swap};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use crate::objects::{ControlPlaneSize, Operation, OperationKind, OperationReason, OperationStatus};
use crate::records::{Mismatch, entry_of};

/// For how long nobody may have looked at control nodes that count as good, in seconds; and how often it is noted that somebody has.
const UNSEEN: i64 = 120;
const NOTED: i64 = 60;

/// Since when all control nodes are good, and when that was seen last, now that they are: for as long as nobody has looked nobody knows it.
pub fn health_times(before: &OperationStatus, now: &Time) -> (Time, Time) {
    let ago = |time: &Time| now.0.as_second() - time.0.as_second();
    match (&before.healthy_since, &before.last_healthy) {
        // A clock that was set back says nothing either.
        (Some(since), Some(seen)) if (-UNSEEN..=UNSEEN).contains(&ago(seen)) => {
            let seen = if ago(seen) < NOTED { seen } else { now };
            (since.clone(), seen.clone())
        }
        _ => (now.clone(), now.clone()),
    }
}

/// How far a swap is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapProgress {
    /// The name of its plan.
    pub id: Uuid,
    pub stage: Stage,
    /// The way that it goes.
    pub direction: Direction,
    /// Whether all nodes go it, and not one alone.
    pub is_of_all: bool,
    /// Whether a node's swap may have been made final: there is no way back then.
    pub is_final: bool,
    /// Whether a control node is off or goes off, or is not found good yet, on the way forward: it cannot stay so.
    pub is_away: bool,
    /// Whether nothing was begun of any node, but that it is left as it is: it ends without anything having moved, whatever way it goes.
    pub is_untouched: bool,
    /// Whether the controller has ended it before anything of it was begun, for another plan to take its place: it has failed at nothing.
    pub is_withdrawn: bool,
    /// Why it waits, if it does; or why it has turned.
    pub why: Option<String>,
    /// Whether the former is so.
    pub waits: bool,
    /// What is done or comes next, in words.
    pub step: Option<String>,
    /// How many steps of its way are done.
    pub done: usize,
    /// SHA-256 of the image that it goes to, in hexadecimal.
    pub digest: String,
    /// How large nodes are on it; none of a swap in which each VM is as large as the one before.
    pub size: Option<ControlPlaneSize>,
    /// Whether what it has come to is pinned; of one that was abandoned, whether all nodes were found to be as it is pinned since.
    pub is_pinned: bool,
}

/// Where a swap stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Steps are left to take.
    Goes,
    /// This node is back on its image, the others are where they were: a person decides.
    NodeIsBack(String),
    /// All nodes run the new image, and there still is a way back.
    Upgraded,
    /// It has ended, as none but these can.
    Ended(Ending),
}

/// How a swap has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The new image is final.
    Committed,
    /// All nodes run what they ran before.
    RolledBack,
    /// A person has ended it where it stood.
    Abandoned,
}

impl Ending {
    /// In the words of `status.outcome`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Abandoned => "abandoned",
        }
    }

    /// The same as the reason of a condition.
    pub fn reason(self) -> OperationReason {
        match self {
            Self::Committed => OperationReason::Done,
            Self::RolledBack => OperationReason::RolledBack,
            Self::Abandoned => OperationReason::Abandoned,
        }
    }
}

impl SwapProgress {
    /// How far an Operation's swap is; none of one that was made, and never begun.
    ///
    /// # Errors
    /// When its plan or its journal is not understood.
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

    /// Whether it has not come to an end after which nothing follows.
    pub fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Ended(_))
    }

    /// Whether it is no more than a plan, which begins if it goes on: no VM was made for it, or those that were are gone again.
    pub fn is_planned(&self) -> bool {
        let is_ahead = match &self.stage {
            Stage::Goes => self.direction == Direction::Forward,
            Stage::NodeIsBack(_) => true,
            Stage::Upgraded | Stage::Ended(_) => false,
        };
        self.is_untouched && is_ahead
    }

    /// Whether a node may be in a VM of its size by now, or come into the one before again: something was begun of one, and there is a way
    /// back, or nobody has noted yet that there is none. A plan that is turned before has taken nothing.
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

    /// Why the conditions of its Operation are as they are.
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
                    "{node} was not found good on the new image and is back on the one before: {why}. Say with kaas.local/do \
                     `resume` to try it again, `rollback` to take all nodes back, or `abandon`"
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

/// Whether a control node is being shut down, or was and is not found good yet, on the way forward. A guest that was asked to goes off also
/// where nobody is left to note that it has: to [`Progress::is_away`], which says who is turned back, it is there until then.
fn is_away(plan: &Plan, progress: &Progress) -> bool {
    let is_away = |node: usize| {
        let (off, good) = (Step::of(Action::ShutDown, node), Step::of(Action::Gate, node));
        progress.is_begun(off) && !progress.is_done(good)
    };
    progress.direction == Direction::Forward && (0..plan.nodes.len()).any(is_away)
}

/// The last swap whose journal was begun.
pub fn last_swap(operations: &[Operation]) -> Option<&Operation> {
    let begun = |operation: &&Operation| {
        let status = operation.status.as_ref();
        operation.spec.kind == OperationKind::ImageSwap && status.is_some_and(|status| !status.entries.is_empty())
    };
    operations.iter().filter(begun).max_by_key(|operation| operation.status.as_ref().map(|status| status.lease))
}

/// Whether a swap has not ended.
pub fn is_open_swap(operation: &&Operation) -> bool {
    matches!(SwapProgress::of(operation), Ok(Some(swapping)) if swapping.is_open())
}

/// How many swaps that have ended a cluster keeps.
const KEPT: usize = 10;

/// The swaps that go, of all Operations of a cluster: those that have ended, but the last ones of them. What follows is decided by the
/// last one, and each has a plan in it: without an end they were more than anybody can read. One that is open, or not understood, stays,
/// and so does one that says that control nodes may differ. Those that raise Kubernetes stay, too: there is one of each minor.
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

/// By this swaps are sorted whose journal was begun: those that were begun last come first.
fn last_first(operation: &Operation) -> std::cmp::Reverse<Option<u64>> {
    std::cmp::Reverse(operation.status.as_ref().map(|status| status.lease))
}

/// The last swap that was abandoned, for as long as nothing says that all control nodes are alike again: neither one that was committed
/// afterwards, nor the nodes themselves. Some may be on its image and in VMs of its size for good, whatever has gone back since.
pub fn unsettled(operations: &[Operation]) -> Option<(&Operation, SwapProgress)> {
    let mut swaps: Vec<&Operation> = operations.iter().filter(|it| it.spec.kind == OperationKind::ImageSwap).collect();
    swaps.sort_by_key(|operation| last_first(operation));
    let mut swaps = swaps.into_iter().filter_map(|operation| Some((operation, SwapProgress::of(operation).ok()??)));
    let last = swaps.find(|(_, swapping)| matches!(swapping.ending(), Some(Ending::Committed | Ending::Abandoned)));
    last.filter(|(_, swapping)| swapping.ending() == Some(Ending::Abandoned) && !swapping.is_pinned)
}

/// Whether what was kept before Operations of a cluster may be needed yet: one of them is under way, or control nodes may differ since one
/// was abandoned. A raise of Kubernetes that was abandoned may be gone on with for good, and counts as long as its own file is kept: without
/// that there is nothing to go back to from it, and what was kept since is another one's.
pub fn may_go_back(operations: &[Operation], is_kept: impl Fn(&str) -> bool) -> bool {
    let counts = |operation: &&Operation| {
        !is_left_half_raised(operation) || own_file(operation).is_some_and(|file| is_kept(&file))
    };
    operations.iter().filter(counts).any(is_under_way) || unsettled(operations).is_some()
}

/// Whether a person has ended a raise of Kubernetes where it stood.
fn is_left_half_raised(operation: &Operation) -> bool {
    let noted = operation.status.as_ref().and_then(|status| status.outcome.as_deref());
    operation.spec.kind == OperationKind::KubernetesUpgrade && noted == Some(Ending::Abandoned.words())
}

/// Whether an Operation was begun, and has not come to an end after which nothing follows. One that raises Kubernetes comes to none by being
/// abandoned: some nodes may be at the next minor, and `resume` goes on with the others. One that is not understood goes by its outcome.
fn is_under_way(operation: &Operation) -> bool {
    match (operation.spec.kind, SwapProgress::of(operation)) {
        (OperationKind::ImageSwap, Ok(swapping)) => swapping.is_some_and(|swapping| swapping.is_open()),
        (OperationKind::ImageSwap, Err(_)) | (OperationKind::KubernetesUpgrade, _) => !is_over(operation),
    }
}

/// Whether an Operation has kept a file of this name before it began, and is over since for good.
pub fn is_done_with(operation: &Operation, file: &str) -> bool {
    own_file(operation).as_deref() == Some(file) && is_over(operation)
}

/// What an Operation keeps before it begins, by its name; none where its plan does not say.
fn own_file(operation: &Operation) -> Option<String> {
    let spec = &operation.spec;
    match spec.kind {
        OperationKind::ImageSwap => {
            let plan = spec.plan.as_ref().and_then(|plan| plan["id"].as_str()?.parse::<Uuid>().ok());
            plan.map(before_swap)
        }
        OperationKind::KubernetesUpgrade => spec.to_version.as_deref().map(before_kubernetes),
    }
}

/// Whether all control nodes are as an Operation was to leave them, or as they were before it.
fn is_over(operation: &Operation) -> bool {
    let noted = operation.status.as_ref().and_then(|status| status.outcome.as_deref());
    match operation.spec.kind {
        OperationKind::KubernetesUpgrade => noted == Some("done"),
        OperationKind::ImageSwap => match SwapProgress::of(operation) {
            Ok(swapping) => {
                matches!(swapping.and_then(|swapping| swapping.ending()), Some(Ending::Committed | Ending::RolledBack))
            }
            Err(_) => [Ending::Committed, Ending::RolledBack].into_iter().any(|ending| noted == Some(ending.words())),
        },
    }
}

/// Whether a swap is of the image that nodes run already, and so for their size alone.
pub(super) fn is_of_size(operation: &Operation) -> bool {
    operation.spec.from_image == operation.spec.to_image
}

/// What all control nodes have once a swap has come to its end, in words.
pub(super) fn goal(operation: &Operation, swapping: &SwapProgress) -> String {
    let image = operation.spec.to_image.as_deref().unwrap_or_default();
    match swapping.size.filter(|_| is_of_size(operation)) {
        Some(size) => format!("{image} with {size}"),
        None => image.to_owned(),
    }
}

/// A step in words: as the Operation's spec has it.
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
    fn an_operation_is_under_way_from_its_first_entry_to_an_end_that_nothing_follows() {
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
    fn what_was_kept_may_be_needed_until_all_control_nodes_are_known_to_be_alike() {
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
    fn an_operation_is_done_with_its_own_file_once_it_is_over() {
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
    fn how_long_control_nodes_are_good_counts_for_as_long_as_somebody_looks() {
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
