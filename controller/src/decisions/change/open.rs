//! The next step of a swap that has not ended.

use fleet::upgrade::{Direction, Request};

use super::image::WantedImage;
use super::operator_action::{OperatorAction, has_asked, is_heard, rollback_hint, word};
use super::{Change, ObservedCluster, name};
use crate::decisions::obstacle::Obstacle;
use crate::decisions::pause_reason::is_pausable;
use crate::decisions::swap_progress::{Stage, SwapProgress, goal, is_of_size};
use crate::objects::{Commit, ControlPlaneSize, DO, Operation, Resolved, TenantClusterReason};

/// How long all control-plane nodes must be healthy on the new image before an automatic commit, in seconds.
const GOOD: i64 = 600;

impl ObservedCluster<'_> {
    pub(super) fn open(&self, operation: &Operation, swapping: &SwapProgress, current: &str) -> Change {
        let (name, spec) = (name(operation), &self.cluster.spec);
        let rest = self.rests.as_ref().filter(|_| is_pausable(swapping));
        if let Some(asked) = word(operation) {
            return match (asked, rest) {
                (Ok(word), None) => has_asked(name, word, swapping),
                (Ok(word), Some(rest)) if is_heard(word, rest) => has_asked(name, word, swapping),
                (asked, Some(rest)) => {
                    let back = rollback_hint(operation).filter(|_| asked == Ok(OperatorAction::Rollback));
                    Change::Answer(name, Some(rest.refuses(back.as_deref())))
                }
                (Err(words), None) => Change::Answer(name, Some(words)),
            };
        }
        let is_former = spec.image.as_deref() == Some(current)
            && operation.spec.from_image.as_deref() == Some(current)
            && operation.spec.to_image.as_deref() != Some(current);
        let goes_back = if is_of_size(operation) { self.is_former_size(operation, swapping) } else { is_former };
        if let Some(rest) = rest.filter(|rest| !(goes_back && is_heard(OperatorAction::Rollback, rest))) {
            let (reason, words) = match &swapping.stage {
                Stage::NodeIsBack(_) => (TenantClusterReason::ChangeFailed, swapping.reasons()[0].1.clone()),
                _ => (TenantClusterReason::Changing, rest.words()),
            };
            return self.shown(operation, swapping, reason, &words);
        }
        match &swapping.stage {
            // The rollback is for all nodes, whatever their state.
            _ if goes_back && swapping.direction == Direction::Forward => Change::Go(name, Request::Rollback),
            Stage::NodeIsBack(_) if goes_back => Change::Go(name, Request::Rollback),
            Stage::Goes if swapping.is_planned() => self.planned(operation, swapping),
            Stage::Goes => Change::Go(name, Request::Resume),
            Stage::NodeIsBack(_) => {
                let words = swapping.reasons()[0].1.clone();
                self.shown(operation, swapping, TenantClusterReason::ChangeFailed, &words)
            }
            Stage::Upgraded => self.awaits_commit(operation, swapping),
            Stage::Ended(_) => Change::Nothing,
        }
    }

    /// The next step of a swap that has not begun: if the spec wants something else now, it is planned again.
    fn planned(&self, operation: &Operation, swapping: &SwapProgress) -> Change {
        match self.unknown_size(operation) {
            // Whether the swap is still wanted is unknown, so it neither begins nor ends.
            Some(obstacle) => Change::Blocked(obstacle.clone()),
            None if self.is_wanted(operation, swapping) => Change::Go(name(operation), Request::Resume),
            None => Change::Go(name(operation), Request::Withdraw),
        }
    }

    /// Whether a plan that is still wanted ends, only for lack of room, which may come.
    pub fn ends_for_room(&self, change: &Change) -> bool {
        let is_wanted = |(operation, swapping): &(&Operation, SwapProgress)| {
            self.unknown_size(operation).is_none() && self.is_wanted_as(operation, swapping, self.size.clone())
        };
        matches!(change, Change::Go(_, Request::Withdraw)) && self.swap.as_ref().is_some_and(is_wanted)
    }

    /// Whether a swap that has not begun blocks something that needs no room for its size. That is its image with the current
    /// size. For a swap of the size alone, it is another image or a minor version.
    pub(super) fn yields(
        &self,
        operation: &Operation,
        swapping: &SwapProgress,
        (pinned, current): (&Resolved, &str),
    ) -> bool {
        if swapping.stage != Stage::Goes || !swapping.is_planned() {
            return false;
        }
        if !is_of_size(operation) {
            return self.size_with_image().is_ok_and(|size| swapping.size != Some(size));
        }
        let instead = match self.wanted(pinned, current) {
            WantedImage::Other(image, named) => self.begins(image, named, current),
            WantedImage::Same | WantedImage::Missing(_) => self.raises(current),
        };
        matches!(instead, Change::Swap(..) | Change::Raise(..))
    }

    /// Whether a swap is still what the spec asks for. An image that was removed from the spec is not.
    fn is_wanted(&self, operation: &Operation, swapping: &SwapProgress) -> bool {
        self.is_wanted_as(operation, swapping, self.size_with_image())
    }

    /// As [`Self::is_wanted`], if the VMs of another image would have this size.
    fn is_wanted_as(
        &self,
        operation: &Operation,
        swapping: &SwapProgress,
        size: Result<ControlPlaneSize, Obstacle>,
    ) -> bool {
        if is_of_size(operation) {
            return self.is_size_wanted(operation, swapping);
        }
        let is_image = match &self.cluster.spec.image {
            Some(image) => operation.spec.to_image.as_ref() == Some(image),
            None => self.cluster.spec.maintenance.auto_update,
        };
        is_image && !self.is_outdated(operation, swapping, size)
    }

    fn awaits_commit(&self, operation: &Operation, swapping: &SwapProgress) -> Change {
        let name = name(operation);
        let to = goal(operation, swapping);
        if !self.is_wanted(operation, swapping) {
            let wanted = match &self.cluster.spec.image {
                Some(image) if operation.spec.to_image.as_ref() != Some(image) => {
                    format!("the spec now names {image}")
                }
                _ if is_of_size(operation) => match &self.size {
                    Ok(size) => format!("the spec now wants another size, {size}"),
                    Err(obstacle) => format!("what size the spec wants is not known: {}", obstacle.message),
                },
                _ => "the spec no longer names it".to_owned(),
            };
            let words = format!(
                "all control-plane nodes run {to}, and {wanted}: {DO} on the Operation {name}, with commit or rollback"
            );
            return self.shown(operation, swapping, TenantClusterReason::AwaitingCommit, &words);
        }
        if self.cluster.spec.upgrade.commit == Commit::Manual {
            let words =
                format!("all control-plane nodes run {to}: {DO} on the Operation {name}, with commit or rollback");
            return self.shown(operation, swapping, TenantClusterReason::AwaitingCommit, &words);
        }
        let since = operation.status.as_ref().and_then(|status| status.healthy_since.as_ref());
        match since {
            Some(since) if self.now.as_second() - since.0.as_second() >= GOOD => Change::Go(name, Request::Commit),
            Some(since) => {
                let words = format!(
                    "all control-plane nodes run {to}, and are healthy since {}: ten minutes are waited",
                    since.0
                );
                self.shown(operation, swapping, TenantClusterReason::AwaitingCommit, &words)
            }
            None => {
                let words = format!("all control-plane nodes run {to}; not all of them are Ready");
                self.shown(operation, swapping, TenantClusterReason::AwaitingCommit, &words)
            }
        }
    }
}
