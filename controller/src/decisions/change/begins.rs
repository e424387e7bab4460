//! What comes next where no swap is open: one begins, or why none does; or nodes are asked whether they are as it is pinned.

use super::operator_action::{OperatorAction, ended, word};
use super::{Change, ObservedCluster, name};
use crate::decisions::obstacle::Obstacle;
use crate::decisions::pause_reason::PauseReason;
use crate::decisions::sizes::pinned_size;
use crate::decisions::swap_progress::{Ending, SwapProgress, goal, is_of_size};
use crate::decisions::window;
use crate::objects::{DO, NodeImage, Operation, OperationReason, Reason, Resolved, TenantClusterReason};

impl ObservedCluster<'_> {
    /// A swap begins, or why it does not: to another image, or where that stays to another size. `named` is whether a person has said so.
    pub(in crate::decisions) fn begins(&self, image: &NodeImage, named: bool, current: &str) -> Change {
        // That one runs already: whatever has become of it, nothing else takes its place.
        let resizes = image.metadata.name.as_deref() == Some(current);
        if let Err(obstacle) = if resizes { Ok(()) } else { self.follows(image, named, current) } {
            return Change::Blocked(obstacle);
        }
        let size = if resizes { self.size.clone() } else { self.size_with_image() };
        let size = match size {
            Ok(size) => size,
            Err(obstacle) => return Change::Blocked(obstacle),
        };
        let mut again = None;
        if let Some((operation, swapping)) = &self.swap {
            let is_it = operation.spec.to_image == image.metadata.name && (!resizes || swapping.size == Some(size));
            let is_back = is_it && matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
            let failed = is_back && !swapping.is_withdrawn;
            match word(operation) {
                Some(Ok(OperatorAction::Resume)) if is_back => again = Some(name(operation)),
                Some(word) => return Change::Answer(name(operation), ended(word, swapping.ending())),
                None if failed && !self.is_newer_than(operation) => return self.failed(operation, swapping),
                None => {}
            }
        }
        if let Some(rest @ PauseReason::ControlCluster(_)) = &self.rests {
            return match again {
                Some(name) => Change::Answer(name, Some(rest.refuses(None))),
                None => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        let window = self.cluster.spec.maintenance.window.as_deref().filter(|_| !named && again.is_none());
        if let Some(window) = window.filter(|window| !window::is_open(window, self.now)) {
            let image = image.metadata.name.as_deref().unwrap_or_default();
            let what = if resizes { format!("{image} with {size}") } else { image.to_owned() };
            return Change::Waits(TenantClusterReason::AwaitingWindow, format!("{what} waits for {window} UTC"));
        }
        match &self.room {
            Some(obstacle) if resizes => Change::Blocked(obstacle.clone()),
            _ => Change::Swap(Box::new(image.clone()), again, size),
        }
    }

    fn failed(&self, operation: &Operation, swapping: &SwapProgress) -> Change {
        let (name, to) = (name(operation), goal(operation, swapping));
        let ended = swapping.ending().map_or("", Ending::words);
        let why = swapping.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let former = operation.spec.from_image.as_deref().unwrap_or_default();
        let other = match swapping.ending() {
            _ if is_of_size(operation) => "another vmClass".to_owned(),
            // Some nodes may run the new one, and there is no way back for these.
            Some(Ending::Abandoned) => "the image that all control nodes are to run".to_owned(),
            _ => format!("{former} or another image"),
        };
        Change::Waits(
            TenantClusterReason::ChangeFailed,
            format!(
                "the upgrade to {to} was {ended}{why}. Ask for it again with {DO}: resume on the Operation {name}, or name {other}"
            ),
        )
    }

    /// Whether the spec is another one than when the end of an Operation was told.
    pub(super) fn is_newer_than(&self, operation: &Operation) -> bool {
        let conditions = operation.status.iter().flat_map(|status| &status.conditions);
        let about = OperationReason::Done.condition();
        let told =
            conditions.filter(|condition| condition.about == about).map(|condition| condition.observed_generation);
        self.cluster.metadata.generation > told.max()
    }

    /// The word of a person to a swap that has ended, where no other image is wanted.
    pub(super) fn answered(&self) -> Option<Change> {
        let (operation, swapping) = self.swap.as_ref()?;
        let is_back = matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
        let refused = match (word(operation)?, &self.room) {
            (Ok(OperatorAction::Resume), Some(obstacle)) if is_back && is_of_size(operation) => {
                Some(obstacle.message.clone())
            }
            (word, _) => ended(word, swapping.ending()),
        };
        Some(Change::Answer(name(operation), refused))
    }

    /// What comes next where the pinned image is wanted, and no other size can be had now.
    pub(super) fn stays(&self, pinned: &Resolved, current: &str) -> Change {
        let then = match self.raises(current) {
            Change::Nothing => self.resizes(pinned, current).unwrap_or(Change::Nothing),
            raises => raises,
        };
        let abandoned = self.abandoned.as_ref();
        if abandoned.is_none() && !self.has_drifted {
            return then;
        }
        let may_differ = self.has_drifted || abandoned.is_some_and(|(_, swapping)| swapping.size.is_some());
        // Where something else comes next, or waits for it, that says so itself, and is held up by no size.
        let would_be_current = then == Change::Nothing;
        let size = pinned_size(pinned).filter(|_| may_differ && would_be_current);
        let then = match (abandoned, size, then) {
            // Once they are found to be alike it is noted, and nobody is asked any more.
            (Some((operation, _)), Some(_), Change::Nothing) => {
                Change::Pin(Box::new(pinned.clone()), Some(name(operation)))
            }
            (_, _, then) => then,
        };
        match self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current)) {
            Some(image) => Change::Judge(Box::new(image.clone()), size, Box::new(then)),
            None => {
                let words = format!("there is no NodeImage {current}, by which nodes are judged");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
        }
    }
}
