//! Why an action was not done.

use super::reason::{HYPERVISOR_TRANSIENT, Reason, STORE};
use crate::cancel::Cancelled;
use crate::hypervisor::{Error, ErrorKind};
use crate::lease::Lost;

/// The reason if reads and waits end because the command was cancelled.
pub(crate) const TO_END: &str = "the command is to end";

#[derive(Debug)]
pub(crate) enum ActionError {
    /// This command must stop.
    Stop(anyhow::Error),
    /// It can be done later.
    Later(Reason),
    /// It may have happened: the request is awaited before the next inventory.
    InDoubt(Reason),
    /// It will never be done.
    Refused(Reason),
}

impl ActionError {
    /// The store failed.
    pub(crate) fn store(error: anyhow::Error) -> Self {
        Self::of(STORE, error)
    }

    /// The reason, and whether it lasts. Sets `in_doubt` if the request may have taken effect.
    pub(crate) fn reason(self, in_doubt: &mut bool) -> anyhow::Result<(Reason, bool)> {
        let lasts = matches!(self, Self::Refused(_));
        *in_doubt |= matches!(self, Self::InDoubt(_));
        match self {
            Self::Stop(error) => Err(error),
            Self::Later(reason) | Self::InDoubt(reason) | Self::Refused(reason) => Ok((reason, lasts)),
        }
    }

    /// An error of this code. [`Lost`] stops the command.
    pub(crate) fn of(code: &str, error: anyhow::Error) -> Self {
        if error.is::<Lost>() { Self::Stop(error) } else { Self::Later(Reason::new(code, format!("{error:#}"))) }
    }
}

/// Reads and waits have ended.
impl From<Cancelled> for ActionError {
    fn from(Cancelled: Cancelled) -> Self {
        Self::Later(Reason::new(HYPERVISOR_TRANSIENT, TO_END))
    }
}

impl From<Error> for ActionError {
    fn from(error: Error) -> Self {
        match error.kind {
            ErrorKind::Fenced => Self::Stop(error.source),
            ErrorKind::InDoubt => Self::InDoubt(error.into()),
            ErrorKind::Refused => Self::Refused(error.into()),
            ErrorKind::Transient | ErrorKind::Changed | ErrorKind::Denied | ErrorKind::NotFound => {
                Self::Later(error.into())
            }
        }
    }
}
