//! The context of every reconciler, and its errors. Knows no kind.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;

use crate::reach::providers::{Providers, Unavailable};
use crate::reach::{Failure, Objects};
use crate::term::{Clock, Term, TermEnded};

pub struct Context {
    /// The control cluster's API server, as long as the term lasts.
    pub objects: Arc<dyn Objects>,
    pub providers: Providers,
    /// The leader's term. Long tasks stop when it ends ([`Term::ended`]).
    pub term: Term,
    pub clock: Clock,
    /// Whether the controller has the build that has installed the control cluster's kinds, if that build is known.
    pub is_marked: bool,
}

/// Why an object was not reconciled. It is tried again with a growing delay.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request to the API server failed.
    #[error("{attempt}: {failure}")]
    Objects {
        attempt: String,
        #[source]
        failure: Failure,
    },
    /// The Provider cannot be asked now.
    #[error(transparent)]
    Provider(#[from] Unavailable),
    /// A request to the Provider failed.
    #[error(transparent)]
    Hypervisor(#[from] fleet::hypervisor::Error),
    /// This controller no longer leads.
    #[error(transparent)]
    Ended(#[from] TermEnded),
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

/// Why work on an object does not continue.
#[derive(Debug)]
pub enum Halt<R> {
    /// For this reason, which its status shows.
    Refused(R),
    Failed(ReconcileError),
}

impl<R, E: Into<ReconcileError>> From<E> for Halt<R> {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Adds what was attempted.
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
    /// The message about an object that cannot be read, for the status of an object in this namespace. It names no object of
    /// another namespace.
    pub fn unreadable(&self, reader: Option<&str>) -> Option<String> {
        let (namespace, words) = anyhow::Chain::new(self).find_map(|cause| match cause.downcast_ref::<Failure>() {
            Some(Failure::Unreadable { namespace, words }) => Some((namespace, words)),
            _ => None,
        })?;
        (namespace.is_none() || namespace.as_deref() == reader).then(|| words.clone())
    }

    /// Whether the object was changed or created by another writer. It is reconciled again at once, without a message.
    pub fn is_race(&self) -> bool {
        matches!(self, Self::Objects { failure: Failure::Changed | Failure::Exists, .. })
    }

    /// The delay after `times` failures in a row: 1 s, doubled each time, at most 300 s.
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
    fn failures_are_retried_with_growing_delay() {
        let trouble = ReconcileError::Other(anyhow::anyhow!("x"));
        let seconds = [(0, 1), (1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (u32::MAX, 300)];
        for (times, seconds) in seconds {
            assert_eq!(trouble.again(times), Action::requeue(Duration::from_secs(seconds)), "{times}");
        }
    }

    #[test]
    fn unreadable_object_is_found_behind_other_errors() {
        let unreadable = |namespace: Option<&str>| {
            let namespace = namespace.map(str::to_owned);
            let failure = Failure::Unreadable { namespace, words: "it cannot be read".to_owned() };
            ReconcileError::Other(anyhow::Error::new(failure).context("looking").context("claiming"))
        };
        let words = |error: ReconcileError| error.unreadable(Some("team-blue"));
        let expected = Some("it cannot be read".to_owned());
        assert_eq!((words(unreadable(None)), words(unreadable(Some("team-blue")))), (expected.clone(), expected));
        assert_eq!(words(unreadable(Some("team-red"))), None);
        assert_eq!(words(ReconcileError::Other(anyhow::anyhow!("it cannot be read"))), None);
    }

    #[test]
    fn ended_term_is_not_an_api_server_error() {
        let ended = Err::<(), _>(Failure::Ended(TermEnded)).attempting("x");
        assert!(matches!(ended, Err(ReconcileError::Ended(_))));
        let changed = Err::<(), _>(Failure::Changed).attempting("writing").unwrap_err();
        assert!(changed.is_race());
        assert_eq!(changed.to_string(), "writing: it was changed since it was read");
        assert!(!ReconcileError::Ended(TermEnded).is_race());
    }
}
