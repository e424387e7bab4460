//! Repeats a request for a while after it had no effect, because giving up would waste the work before it. Knows
//! nothing of the request.

use vsphere::{Client, Outcome, Tries};

use crate::hypervisor::{Error, ErrorKind, Fence};

/// The tries of one request. The pause after a permit that timed out is longer than others. The question may still be
/// in flight, and each further one would burden a store that hangs.
pub(super) struct RetryBudget<'a> {
    what: &'a str,
    permit: &'a dyn Fence,
    tries: Tries<'a>,
    is_told: bool,
}

impl<'a> RetryBudget<'a> {
    /// For a request, in words for users. The time counts from now.
    pub(super) fn with(client: &'a Client, what: &'a str, permit: &'a dyn Fence) -> Self {
        Self { what, permit, tries: client.tries(), is_told: false }
    }

    /// Waits until the next try, and logs the reason once. False if the time is over, or if the caller no longer waits
    /// for a permit. Then no request is in flight, and all objects stay as they are.
    pub(super) async fn outlasts(&mut self, why: String) -> bool {
        if !self.is_told {
            log::warn!("{} is tried again for a while: {why}", self.what);
            self.is_told = true;
        }
        if !self.tries.again().await {
            return false;
        }
        let rest = self.permit.rest();
        // After other failures only the short pauses count: giving up would waste all earlier work.
        rest.is_zero() || self.permit.rests(rest).await
    }
}

/// Whether a request had no effect and may be made later: it was not possible now, or the permit timed out.
pub(super) fn may_be_made_later(error: &vsphere::Error) -> bool {
    match error {
        vsphere::Error::Stopped(reason) => reason
            .downcast_ref::<Error>()
            .is_some_and(|own| matches!(own.kind, ErrorKind::Transient | ErrorKind::InDoubt)),
        error => error.outcome() == Outcome::Transient,
    }
}
