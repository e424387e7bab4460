//! Why something is not done yet.

use serde::Serialize;

use super::worker_record::WorkerRecord;
use crate::engine::Reason;

/// A condition before the run continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The worker that it is about. `None` for the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(flatten)]
    pub reason: Reason,
    /// Whether the operator must act, or it has lasted too long: waiting does not help.
    #[serde(skip)]
    pub lasting: bool,
    /// Whether a new token resolves it.
    #[serde(skip)]
    pub token: bool,
}

impl Wait {
    /// The wait may end by itself.
    pub(super) fn passing(machine: &WorkerRecord, code: &str, words: impl std::fmt::Display) -> Self {
        Self { worker: Some(machine.name.clone()), reason: Reason::new(code, words), lasting: false, token: false }
    }

    /// The operator must act.
    pub(super) fn lasting(machine: &WorkerRecord, code: &str, words: impl std::fmt::Display) -> Self {
        Self { lasting: true, ..Self::passing(machine, code, words) }
    }

    /// The wait is about the pool.
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
