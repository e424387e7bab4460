//! What a failed call means for whoever made it.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Nothing happened; the same call may succeed later, by itself or by what a person does on the hypervisor: it does
    /// not answer, or has too many sessions; a datastore is full; no host has room; a host is in maintenance; a task or a
    /// lock is in the way.
    Transient,
    /// The VM is not as it was seen: look again. Nothing happened.
    Changed,
    /// It may have happened, or may still: settle, then look.
    InDoubt,
    /// The hypervisor refuses; nothing happened, and the same call will be refused again whatever anybody does
    /// elsewhere: a VM that carries another stamp, an image that is another one. A node that is away goes back for it at
    /// once, so what may pass is never told like this.
    Refused,
    /// A privilege is missing; nothing happened.
    Denied,
    /// The VM or the disk is not there.
    NotFound,
    /// The caller is no longer the one who may change anything. What the call had begun before may have happened;
    /// nothing was begun after.
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
    /// An error of this kind.
    pub fn new(kind: ErrorKind, source: impl Into<anyhow::Error>) -> Self {
        Self { kind, source: source.into() }
    }

    /// Nothing happened; it may succeed later.
    pub fn transient(source: impl Into<anyhow::Error>) -> Self {
        Self::new(ErrorKind::Transient, source)
    }

    /// It is refused, in these words.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Refused, anyhow::anyhow!("{why}"))
    }

    /// What was named is not there, in these words.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, anyhow::anyhow!("{what}"))
    }

    /// The same, with what was attempted.
    #[must_use]
    pub fn context(self, attempt: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { source: self.source.context(attempt), ..self }
    }
}

/// The whole chain: it is told to people as it stands.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.source)
    }
}

impl std::error::Error for Error {}
