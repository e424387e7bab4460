//! Why a call failed, and what that leaves behind.

use std::time::Duration;

use crate::fault::Fault;
use crate::soap::{ForbiddenCharacter, Malformed};
use crate::treatment::Outcome;

/// A failed call. [`Error::outcome`] says what it leaves behind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// vCenter answers with a fault.
    #[error("{attempt}: {fault}")]
    Fault {
        /// What was attempted.
        attempt: String,
        /// The fault.
        fault: Box<Fault>,
    },
    /// No connection: nothing was sent.
    #[error("{attempt}: {reason}")]
    Unreached {
        /// What was attempted.
        attempt: String,
        /// Why there is none.
        reason: String,
    },
    /// What only looks, or an upload, got no answer that can be used.
    #[error("{attempt}: {reason}")]
    Unanswered {
        /// What was attempted.
        attempt: String,
        /// What came instead.
        reason: String,
    },
    /// What changes something was sent and got no answer that can be used, or its task is not seen to end.
    #[error("{attempt}: {reason}; it may have happened")]
    InDoubt {
        /// What was attempted.
        attempt: String,
        /// What came instead.
        reason: String,
    },
    /// The session has ended, and what belonged to it with it: begin again. There is a new session.
    #[error("{attempt}: the session had ended")]
    SessionLost {
        /// What was attempted.
        attempt: String,
    },
    /// What was waited for is not so yet; nothing was begun.
    #[error("{attempt}: not so after {} s", limit.as_secs())]
    Late {
        /// What was waited for.
        attempt: String,
        /// For how long.
        limit: Duration,
    },
    /// This client refuses: nothing was sent.
    #[error("{attempt}: {reason}")]
    Refused {
        /// What was attempted.
        attempt: String,
        /// Why.
        reason: String,
    },
    /// vCenter does not show what it shows to each account that may read the object.
    #[error(
        "{attempt}: vCenter does not show it, since the account lacks System.Read on {on}: give it there at least the role Read-only, \
         with \"Propagate to children\""
    )]
    Unreadable {
        /// What was attempted.
        attempt: String,
        /// What people call the object.
        on: String,
    },
    /// There is no such object.
    #[error("{attempt}: {reason}")]
    NotFound {
        /// What was attempted.
        attempt: String,
        /// What is not there.
        reason: String,
    },
    /// The guard has stopped the call.
    #[error(transparent)]
    Stopped(Box<dyn std::error::Error + Send + Sync>),
}

/// What a call yields.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What became of the call.
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

    /// The fault, if it is one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// Whether it is a fault of this type, or one because of such a fault.
    pub fn is_fault(&self, kind: &str) -> bool {
        self.fault().is_some_and(|fault| fault.is(kind))
    }

    /// Whether the account lacks a privilege. A login that is not accepted is something else.
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

/// For what a look brought.
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
