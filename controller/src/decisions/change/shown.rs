//! Whether an Operation says where it stands, and what it says.

use super::{Change, ObservedCluster, name};
use crate::decisions::pause_reason::{is_pausable, is_still, swap_reasons};
use crate::decisions::swap_progress::{Ending, SwapProgress};
use crate::objects::{Operation, OperationReason, Reason, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Waits, once the Operation says where it stands.
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

/// How it has ended; none if it has not.
pub(super) fn outcome(operation: &Operation) -> Option<&str> {
    operation.status.as_ref()?.outcome.as_deref()
}

/// Why an Operation waits for a person; none if it does not.
pub fn blocked(operation: &Operation) -> Option<String> {
    says(operation, OperationReason::Blocked)
}

/// What an Operation says with a reason; none if it is another one.
pub(super) fn says(operation: &Operation, reason: OperationReason) -> Option<String> {
    let mut conditions = operation.status.iter().flat_map(|status| &status.conditions);
    let is_it = |about: &str, because: &str| (about, because) == (reason.condition(), reason.word());
    let found = conditions.find(|condition| is_it(&condition.about, &condition.reason));
    found.map(|condition| condition.message.clone())
}

/// Whether an Operation says where its swap stands.
pub(super) fn is_shown(operation: &Operation, swapping: &SwapProgress) -> bool {
    let said = operation.status.as_ref();
    let outcome = swapping.ending().map(Ending::words);
    said.is_some_and(|said| {
        said.step == swapping.step && said.outcome.as_deref() == outcome && !said.conditions.is_empty()
    })
}
