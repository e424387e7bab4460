//! Why something is not done yet.

use serde::Serialize;

use super::worker_record::WorkerRecord;
use crate::upgrade::Reason;

/// Something that has to happen before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The machine that it is about; none for the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(flatten)]
    pub reason: Reason,
    /// Whether a person has to see to it, or it has lasted too long: waiting on does not help.
    #[serde(skip)]
    pub lasting: bool,
    /// Whether a new token mends it.
    #[serde(skip)]
    pub token: bool,
}

impl Wait {
    /// It may pass by itself.
    pub(super) fn passing(machine: &WorkerRecord, code: &str, words: impl std::fmt::Display) -> Self {
        Self { worker: Some(machine.name.clone()), reason: Reason::new(code, words), lasting: false, token: false }
    }

    /// A person has to see to it.
    pub(super) fn lasting(machine: &WorkerRecord, code: &str, words: impl std::fmt::Display) -> Self {
        Self { lasting: true, ..Self::passing(machine, code, words) }
    }

    /// It is about the pool.
    pub(super) fn of_pool(code: &str, lasting: bool, words: impl std::fmt::Display) -> Self {
        Self { worker: None, reason: Reason::new(code, words), lasting, token: false }
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.worker {
            Some(worker) => write!(f, "{worker}: {}", self.reason),
            None => self.reason.fmt(f),
        }
    }
}
