//! Errors of calls, and what the calls leave behind.

use std::time::Duration;

use crate::fault::Fault;
use crate::soap::{ForbiddenCharacter, Malformed};
use crate::treatment::Outcome;

/// A failed call. [`Error::outcome`] tells what it leaves behind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// vCenter answered with a fault.
    #[error("{attempt}: {fault}")]
    Fault {
        /// The action.
        attempt: String,
        /// The fault.
        fault: Box<Fault>,
    },
    /// No connection was made, so nothing was sent.
    #[error("{attempt}: {reason}")]
    Unreached {
        /// The action.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// A look or an upload got no valid answer.
    #[error("{attempt}: {reason}")]
    Unanswered {
        /// The action.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// A change was sent and got no valid answer, or the end of its task was not seen.
    #[error("{attempt}: {reason}; it may have happened")]
    InDoubt {
        /// The action.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// The session has ended, with all its objects. A new session is open: start again.
    #[error("{attempt}: the session had ended")]
    SessionLost {
        /// The action.
        attempt: String,
    },
    /// A condition was not met in time. Nothing was started.
    #[error("{attempt}: not so after {} s", limit.as_secs())]
    Late {
        /// The condition.
        attempt: String,
        /// The time limit.
        limit: Duration,
    },
    /// This client rejects the call: nothing was sent.
    #[error("{attempt}: {reason}")]
    Refused {
        /// The action.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// vCenter does not show a property that each account with read access to the object sees.
    #[error(
        "{attempt}: vCenter does not show it, since the account lacks System.Read on {on}: give it there at least the role Read-only, \
         with \"Propagate to children\""
    )]
    Unreadable {
        /// The action.
        attempt: String,
        /// The users' name of the object.
        on: String,
    },
    /// The object does not exist.
    #[error("{attempt}: {reason}")]
    NotFound {
        /// The action.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// The guard stopped the call.
    #[error(transparent)]
    Stopped(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The outcome of the call.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Fault { fault, .. } => fault.treatment().outcome,
            Self::Unreached { .. } | Self::Unanswered { .. } | Self::SessionLost { .. } | Self::Late { .. } => {
                Outcome::Transient
            }
            Self::InDoubt { .. } => Outcome::InDoubt,
            Self::Refused { .. } => Outcome::Refused,
            Self::Unreadable { .. } => Outcome::Denied,
            Self::NotFound { .. } => Outcome::NotFound,
            Self::Stopped(_) => Outcome::Stopped,
        }
    }

    /// The fault, if vCenter answered with one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// Whether vCenter answered with a fault of this type, or one that such a fault caused.
    pub fn is_fault(&self, kind: &str) -> bool {
        self.fault().is_some_and(|fault| fault.is(kind))
    }

    /// Whether the account lacks a privilege. A rejected login is another error.
    pub fn lacks_privilege(&self) -> bool {
        matches!(self, Self::Unreadable { .. }) || self.is_fault("NoPermission")
    }

    pub(crate) fn of_fault(attempt: impl Into<String>, fault: Fault) -> Self {
        Self::Fault { attempt: attempt.into(), fault: Box::new(fault) }
    }

    pub(crate) fn unanswered(attempt: impl Into<String>, reason: impl ToString) -> Self {
        Self::Unanswered { attempt: attempt.into(), reason: reason.to_string() }
    }

    pub(crate) fn in_doubt(attempt: impl Into<String>, reason: impl ToString) -> Self {
        Self::InDoubt { attempt: attempt.into(), reason: reason.to_string() }
    }

    pub(crate) fn refused(attempt: impl Into<String>, reason: impl ToString) -> Self {
        Self::Refused { attempt: attempt.into(), reason: reason.to_string() }
    }

    pub(crate) fn unreadable(attempt: impl Into<String>, on: impl Into<String>) -> Self {
        Self::Unreadable { attempt: attempt.into(), on: on.into() }
    }

    pub(crate) fn not_found(attempt: impl Into<String>, reason: impl ToString) -> Self {
        Self::NotFound { attempt: attempt.into(), reason: reason.to_string() }
    }
}

/// For answers to looks.
impl From<Malformed> for Error {
    fn from(error: Malformed) -> Self {
        Self::unanswered("reading an answer", error)
    }
}

impl From<ForbiddenCharacter> for Error {
    fn from(error: ForbiddenCharacter) -> Self {
        Self::refused("writing a request", error)
    }
}
