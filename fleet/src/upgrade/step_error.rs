//! Why a step was not done. Also whether that may pass by itself, and whether a node that is away goes back for it.

use std::fmt;

use super::refusal;
use crate::cancel::Cancelled;
use crate::engine::{Reason, STORE, Unconfirmed};
use crate::hypervisor::{Error, ErrorKind};
use crate::lease::Lost;

#[derive(Debug)]
pub(super) enum StepError {
    /// Something is in its way.
    Cannot(Obstacle),
    /// The journal could not be written for as long as the run waits: nothing can follow.
    JournalUnwritable(Reason),
    /// This command may not go on.
    Stop(anyhow::Error),
    /// This command was asked to end.
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Obstacle {
    pub(super) reason: Reason,
    /// Whether it may pass by itself, or by an operator's action elsewhere.
    pub(super) passes: bool,
    /// Whether a node that is away goes back for it.
    pub(super) turns: RollbackTrigger,
}

/// When a node that is away goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RollbackTrigger {
    /// At once: the way forward is closed.
    AtOnce,
    /// When it lasts for as long as the node may take to be healthy.
    WhenItLasts,
    /// Never: going back would fix nothing, or is blocked by the same.
    Never,
}

impl StepError {
    /// It may pass by itself.
    pub(super) fn pause(code: &str, words: impl fmt::Display) -> Self {
        Self::cannot(Reason::new(code, words), true, RollbackTrigger::WhenItLasts)
    }

    /// It will not pass, and a rollback is possible.
    pub(super) fn refused(code: &str, words: impl fmt::Display) -> Self {
        Self::cannot(Reason::new(code, words), false, RollbackTrigger::AtOnce)
    }

    /// It will not pass, and blocks a rollback as well: the operator has to act.
    pub(super) fn blocked(code: &str, words: impl fmt::Display) -> Self {
        Self::cannot(Reason::new(code, words), false, RollbackTrigger::Never)
    }

    /// It may pass, and the node that is away is not at fault.
    pub(super) fn elsewhere(code: &str, words: impl fmt::Display) -> Self {
        Self::cannot(Reason::new(code, words), true, RollbackTrigger::Never)
    }

    /// The store does not do its part.
    pub(super) fn store(error: &anyhow::Error) -> Self {
        Self::elsewhere(STORE, format!("{error:#}"))
    }

    ///
    /// # Errors
    /// The error itself, if it is not an obstacle of a step.
    pub(super) fn obstacle(self) -> Result<Obstacle, Self> {
        if let Self::Cannot(obstacle) = self { Ok(obstacle) } else { Err(self) }
    }

    fn cannot(reason: Reason, passes: bool, turns: RollbackTrigger) -> Self {
        Self::Cannot(Obstacle { reason, passes, turns })
    }
}

impl From<Cancelled> for StepError {
    fn from(Cancelled: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// A node's refusal may pass: the caller waits.
impl From<Reason> for StepError {
    fn from(reason: Reason) -> Self {
        Self::cannot(reason, true, RollbackTrigger::WhenItLasts)
    }
}

/// An operation that the hypervisor cannot do now it cannot do for a rollback either.
impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        match error.kind {
            ErrorKind::Fenced => Self::Stop(error.source),
            ErrorKind::Refused | ErrorKind::NotFound => Self::cannot(error.into(), false, RollbackTrigger::AtOnce),
            ErrorKind::Denied => Self::cannot(error.into(), false, RollbackTrigger::Never),
            ErrorKind::Transient if error.source.is::<Unconfirmed>() => Self::store(&error.source),
            ErrorKind::Transient | ErrorKind::Changed | ErrorKind::InDoubt => {
                Self::cannot(error.into(), true, RollbackTrigger::Never)
            }
        }
    }
}

/// A node that does not answer may do so later: the caller waits.
impl From<anyhow::Error> for StepError {
    fn from(error: anyhow::Error) -> Self {
        if error.is::<Lost>() {
            return Self::Stop(error);
        }
        let words = format!("{error:#}");
        if error.is::<Unconfirmed>() {
            return Self::elsewhere(STORE, words);
        }
        Self::pause(refusal::NODE_SILENT, words)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cannot(Obstacle { reason, .. }) | Self::JournalUnwritable(reason) => f.write_str(&reason.words),
            Self::Stop(error) => write!(f, "{error:#}"),
            Self::Cancelled => f.write_str("the command was asked to end"),
        }
    }
}

/// Why a look does not see yet what is waited for.
#[derive(Debug)]
pub(super) enum Wait {
    /// It may at the next look.
    NotYet(Reason),
    /// No further look helps.
    End(StepError),
}

impl Wait {
    pub(super) fn not_yet(code: &str, words: impl fmt::Display) -> Self {
        Self::NotYet(Reason::new(code, words))
    }
}

impl From<Reason> for Wait {
    fn from(reason: Reason) -> Self {
        Self::NotYet(reason)
    }
}

impl From<StepError> for Wait {
    fn from(trouble: StepError) -> Self {
        Self::End(trouble)
    }
}

/// Information that a node or the hypervisor cannot give now, it may give at the next look.
impl From<anyhow::Error> for Wait {
    fn from(error: anyhow::Error) -> Self {
        Self::of(error.into())
    }
}

impl From<Error> for Wait {
    fn from(error: Error) -> Self {
        Self::of(error.into())
    }
}

impl Wait {
    fn of(trouble: StepError) -> Self {
        match trouble {
            StepError::Cannot(Obstacle { reason, .. }) => Self::NotYet(reason),
            trouble => Self::End(trouble),
        }
    }
}
