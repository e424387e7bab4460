//! Why what runs VMs cannot be asked.

use crate::reach::Failure;

/// Why a Provider cannot be used now.
#[derive(Debug, thiserror::Error)]
#[error("the Provider {provider}: {why}")]
pub struct Unavailable {
    pub provider: String,
    #[source]
    pub why: UnavailableReason,
}

/// Why, by what a person does about it.
#[derive(Debug, thiserror::Error)]
pub enum UnavailableReason {
    /// The API server does not say what its credentials are.
    #[error("reading its credentials: {0}")]
    NotKnown(#[source] Failure),
    /// The Secret is not there, or lacks something.
    #[error("{0}")]
    Secret(String),
    /// It failed so often that it is left alone for a while.
    #[error("it is left alone until {until}, for it fails again and again: {why}")]
    BackingOff {
        /// For how much longer, in seconds.
        seconds: u64,
        /// The same as a time.
        until: String,
        /// How it failed last.
        why: String,
    },
    #[error("{0}")]
    NoAnswer(String),
    /// It does not prove itself.
    #[error("{0}")]
    Untrusted(String),
    /// It is another server than is meant.
    #[error("{0}")]
    OtherServer(String),
    /// It does not accept user and password.
    #[error("{0}")]
    LoginRefused(String),
    /// It answers, and does not do something, or has no such thing.
    #[error("{0}")]
    Hypervisor(#[source] fleet::hypervisor::Error),
    /// It is described as nothing that this version knows.
    #[error("it is of a type that this version does not know, or lacks what goes with its type")]
    Unknown,
}

impl UnavailableReason {
    /// Of the Provider of this name.
    pub(super) fn of(self, provider: &str) -> Unavailable {
        Unavailable { provider: provider.to_owned(), why: self }
    }
}
