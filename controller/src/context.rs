//! What every reconciler is given, and what it ends with where it does not succeed. Knows no kind.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;

use crate::reach::providers::{Providers, Unavailable};
use crate::reach::{Failure, Objects};
use crate::term::{Clock, Term, TermEnded};

pub struct Context {
    /// The control cluster's API server, for as long as the term lasts.
    pub objects: Arc<dyn Objects>,
    pub providers: Providers,
    /// For how long this controller leads. What lasts gives up once it has ended ([`Term::ended`]).
    pub term: Term,
    pub clock: Clock,
    /// Whether the controller is of the build that the control cluster's kinds are of, as far as that is told.
    pub is_marked: bool,
}

/// Why an object was not brought to where it is to be. It is tried again, later and later.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server did not do something.
    #[error("{attempt}: {failure}")]
    Objects {
        attempt: String,
        #[source]
        failure: Failure,
    },
    /// What runs VMs cannot be asked now.
    #[error(transparent)]
    Provider(#[from] Unavailable),
    /// What runs VMs did not do something.
    #[error(transparent)]
    Hypervisor(#[from] fleet::hypervisor::Error),
    /// This controller does not lead any more.
    #[error(transparent)]
    Ended(#[from] TermEnded),
    /// Something else.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

/// Says what was attempted.
pub trait Attempt<T> {
    /// # Errors
    /// The failure, with the attempt.
    fn attempting(self, attempt: &str) -> Result<T, ReconcileError>;
}

impl<T> Attempt<T> for Result<T, Failure> {
    fn attempting(self, attempt: &str) -> Result<T, ReconcileError> {
        self.map_err(|failure| match failure {
            Failure::Ended(ended) => ReconcileError::Ended(ended),
            failure => ReconcileError::Objects { attempt: attempt.to_owned(), failure },
        })
    }
}

impl ReconcileError {
    /// Whether somebody else has written the object meanwhile: it is looked at again at once, and nobody needs to know.
    pub fn is_race(&self) -> bool {
        matches!(self, Self::Objects { failure: Failure::Changed | Failure::Exists, .. })
    }

    /// When it is tried again after it has come up so many times in a row, at least once.
    pub fn again(&self, times: u32) -> Action {
        const SHORTEST: Duration = Duration::from_secs(1);
        const LONGEST: Duration = Duration::from_secs(300);
        let grown = SHORTEST * 2_u32.saturating_pow(times.saturating_sub(1).min(16));
        Action::requeue(grown.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_later_and_later() {
        let trouble = ReconcileError::Other(anyhow::anyhow!("x"));
        let seconds = [(0, 1), (1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (u32::MAX, 300)];
        for (times, seconds) in seconds {
            assert_eq!(trouble.again(times), Action::requeue(Duration::from_secs(seconds)), "{times}");
        }
    }

    #[test]
    fn who_may_write_no_more_is_told_so_and_not_that_the_api_server_refuses() {
        let ended = Err::<(), _>(Failure::Ended(TermEnded)).attempting("x");
        assert!(matches!(ended, Err(ReconcileError::Ended(_))));
        let changed = Err::<(), _>(Failure::Changed).attempting("writing").unwrap_err();
        assert!(changed.is_race());
        assert_eq!(changed.to_string(), "writing: it was changed since it was read");
        assert!(!ReconcileError::Ended(TermEnded).is_race());
    }
}
