//! The errors of a call, by what they mean for the caller.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Nothing happened. The same call may succeed later, by itself or after the operator has changed something on the
    /// hypervisor. Examples: the hypervisor does not answer or has too many sessions, or a task or a lock blocks the
    /// call. Or a datastore is full, no host has room, or a host is in maintenance.
    Transient,
    /// The VM has changed since it was read: look again. Nothing happened.
    Changed,
    /// The change may have happened or may still happen: settle, then look.
    InDoubt,
    /// The hypervisor refuses. Nothing happened, and the same call will be refused again whatever changes elsewhere: a
    /// VM with another stamp, an image with another digest. A node that is being replaced is rolled back at once, so a
    /// temporary problem never has this kind.
    Refused,
    /// A privilege is missing; nothing happened.
    Denied,
    /// The VM or the disk does not exist.
    NotFound,
    /// The caller no longer holds the lease. Changes that the call began before may have happened. Nothing was begun
    /// afterwards.
    Fenced,
}

/// Why a call failed.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// The attempt and the reason.
    pub source: anyhow::Error,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, source: impl Into<anyhow::Error>) -> Self {
        Self { kind, source: source.into() }
    }

    /// An error after which nothing has changed. The call may succeed later.
    pub fn transient(source: impl Into<anyhow::Error>) -> Self {
        Self::new(ErrorKind::Transient, source)
    }

    /// An error with [`ErrorKind::Refused`] and this text.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Refused, anyhow::anyhow!("{why}"))
    }

    /// An error with [`ErrorKind::NotFound`] and this text.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, anyhow::anyhow!("{what}"))
    }

    /// Adds the attempt to the error.
    #[must_use]
    pub fn context(self, attempt: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { source: self.source.context(attempt), ..self }
    }
}

/// Writes the whole chain: users see it unchanged.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.source)
    }
}

impl std::error::Error for Error {}
