//! What is done again for a while where nothing has come of it, for giving it up would waste all that was done before. Knows nothing of
//! what it is.

use vsphere::{Client, Outcome, Tries};

use crate::hypervisor::{Error, ErrorKind, Fence};

/// Tries of one request. A permit that nobody gives in time is waited for longer than other things: what was asked may still be under way,
/// and each further question would be another one on a store that hangs.
pub(super) struct RetryBudget<'a> {
    what: &'a str,
    permit: &'a dyn Fence,
    tries: Tries<'a>,
    is_told: bool,
}

impl<'a> RetryBudget<'a> {
    /// For a request, in words for people, from now on.
    pub(super) fn with(client: &'a Client, what: &'a str, permit: &'a dyn Fence) -> Self {
        Self { what, permit, tries: client.tries(), is_told: false }
    }

    /// Waits until it may be tried again; what it waits for is said once. False when it has been tried for long enough, or whoever asked for
    /// it does not wait for a permit any more: nothing is under way then, and what is there stays as it is.
    pub(super) async fn outlasts(&mut self, why: String) -> bool {
        if !self.is_told {
            log::warn!("{} is tried again for a while: {why}", self.what);
            self.is_told = true;
        }
        if !self.tries.again().await {
            return false;
        }
        let rest = self.permit.rest();
        // Of what fails otherwise only the short pauses are waited for: to give it up would waste all that was done.
        rest.is_zero() || self.permit.rests(rest).await
    }
}

/// Whether nothing has come of a request, and it may be made later: it could not be now, or nobody has said in time whether it may.
pub(super) fn may_be_made_later(error: &vsphere::Error) -> bool {
    match error {
        vsphere::Error::Stopped(reason) => reason
            .downcast_ref::<Error>()
            .is_some_and(|own| matches!(own.kind, ErrorKind::Transient | ErrorKind::InDoubt)),
        error => error.outcome() == Outcome::Transient,
    }
}
