//! Why a Provider cannot be used.

use crate::reach::Failure;

#[derive(Debug, thiserror::Error)]
#[error("the Provider {provider}: {why}")]
pub struct Unavailable {
    pub provider: String,
    #[source]
    pub why: UnavailableReason,
}

/// One variant for each remedy.
#[derive(Debug, thiserror::Error)]
pub enum UnavailableReason {
    /// The API server did not return its credentials.
    #[error("reading its credentials: {0}")]
    NotKnown(#[source] Failure),
    /// The Secret does not exist, or lacks a key.
    #[error("{0}")]
    Secret(String),
    /// It is not called for a while after repeated failures.
    #[error("it is not called until {until}, because it failed repeatedly: {why}")]
    BackingOff {
        /// The time left, in seconds.
        seconds: u64,
        /// The end of the back-off, as text.
        until: String,
        why: String,
    },
    #[error("{0}")]
    NoAnswer(String),
    /// Its certificate is not trusted.
    #[error("{0}")]
    Untrusted(String),
    /// It is a different server from before.
    #[error("{0}")]
    OtherServer(String),
    /// It rejects user or password.
    #[error("{0}")]
    LoginRefused(String),
    /// It answers, but rejects a call or lacks an object.
    #[error("{0}")]
    Hypervisor(#[source] fleet::hypervisor::Error),
    /// This version does not know its type, or the part for its type is missing.
    #[error("it is of a type that this version does not know, or lacks what goes with its type")]
    Unknown,
}

impl UnavailableReason {
    /// Adds the name of the Provider.
    pub(super) fn of(self, provider: &str) -> Unavailable {
        Unavailable { provider: provider.to_owned(), why: self }
    }
}
