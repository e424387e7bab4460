//! Whether the status of an Operation is up to date, and its messages.

use super::{Change, ObservedCluster, name};
use crate::decisions::pause_reason::{is_pausable, is_still, swap_reasons};
use crate::decisions::swap_progress::{Ending, SwapProgress};
use crate::objects::{Operation, OperationReason, Reason, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Waits, once the Operation shows its state.
    pub(super) fn shown(
        &self,
        operation: &Operation,
        swapping: &SwapProgress,
        reason: TenantClusterReason,
        words: &str,
    ) -> Change {
        let rest = self.rests.as_ref().filter(|_| is_pausable(swapping));
        let stands = swap_reasons(rest, swapping)[0].0;
        let mut resting = [OperationReason::Paused, OperationReason::ControlClusterChanges].into_iter();
        let says_so = match says(operation, OperationReason::Rejected) {
            Some(refused) => is_still(&refused, rest),
            None => resting.all(|reason| says(operation, reason).is_some() == (stands == reason)),
        };
        if is_shown(operation, swapping) && says_so {
            Change::Waits(reason, words.to_owned())
        } else {
            Change::Show(name(operation))
        }
    }
}

/// The outcome of an Operation. `None` if it has not ended.
pub(super) fn outcome(operation: &Operation) -> Option<&str> {
    operation.status.as_ref()?.outcome.as_deref()
}

/// Why an Operation waits for the operator, if it does.
pub fn blocked(operation: &Operation) -> Option<String> {
    says(operation, OperationReason::Blocked)
}

/// The message of an Operation's condition if it has this reason.
pub(super) fn says(operation: &Operation, reason: OperationReason) -> Option<String> {
    let mut conditions = operation.status.iter().flat_map(|status| &status.conditions);
    let is_it = |about: &str, because: &str| (about, because) == (reason.condition(), reason.word());
    let found = conditions.find(|condition| is_it(&condition.about, &condition.reason));
    found.map(|condition| condition.message.clone())
}

/// Whether the status of an Operation shows the progress of its swap.
pub(super) fn is_shown(operation: &Operation, swapping: &SwapProgress) -> bool {
    let said = operation.status.as_ref();
    let outcome = swapping.ending().map(Ending::words);
    said.is_some_and(|said| {
        said.step == swapping.step && said.outcome.as_deref() == outcome && !said.conditions.is_empty()
    })
}
