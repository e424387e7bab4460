//! Why an action was not done.

use super::reason;
use crate::hypervisor::{Error, ErrorKind};
use crate::lease::Lost;
use crate::upgrade::{
    HYPERVISOR_CHANGED, HYPERVISOR_DENIED, HYPERVISOR_IN_DOUBT, HYPERVISOR_NOT_FOUND, HYPERVISOR_REFUSED,
    HYPERVISOR_TRANSIENT, Reason, STORE,
};

/// The reason if reads and waits end because the command was cancelled.
pub(crate) const TO_END: &str = "the command is to end";

/// Why an action was not done.
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
    /// The cluster's API failed.
    pub(super) fn api(error: anyhow::Error) -> Self {
        Self::of(reason::API, error)
    }

    /// The store failed.
    pub(crate) fn store(error: anyhow::Error) -> Self {
        Self::of(STORE, error)
    }

    /// Reads and waits have ended.
    pub(crate) fn is_to_end(code: &str) -> Self {
        Self::Later(Reason::new(code, TO_END))
    }

    /// The reason, and whether it lasts. Sets `in_doubt` if the request may have taken effect.
    ///
    /// # Errors
    /// If this command must stop.
    pub(crate) fn reason(self, in_doubt: &mut bool) -> anyhow::Result<(Reason, bool)> {
        let lasts = matches!(self, Self::Refused(_));
        *in_doubt |= matches!(self, Self::InDoubt(_));
        match self {
            Self::Stop(error) => Err(error),
            Self::Later(reason) | Self::InDoubt(reason) | Self::Refused(reason) => Ok((reason, lasts)),
        }
    }

    fn of(code: &str, error: anyhow::Error) -> Self {
        if error.is::<Lost>() { Self::Stop(error) } else { Self::Later(Reason::new(code, format!("{error:#}"))) }
    }
}

impl From<Error> for ActionError {
    fn from(error: Error) -> Self {
        let words = format!("{:#}", error.source);
        let later = |code| Self::Later(Reason::new(code, &words));
        match error.kind {
            ErrorKind::Fenced => Self::Stop(error.source),
            ErrorKind::InDoubt => Self::InDoubt(Reason::new(HYPERVISOR_IN_DOUBT, words)),
            ErrorKind::Refused => Self::Refused(Reason::new(HYPERVISOR_REFUSED, words)),
            ErrorKind::Transient => later(HYPERVISOR_TRANSIENT),
            ErrorKind::Changed => later(HYPERVISOR_CHANGED),
            ErrorKind::Denied => later(HYPERVISOR_DENIED),
            ErrorKind::NotFound => later(HYPERVISOR_NOT_FOUND),
        }
    }
}
