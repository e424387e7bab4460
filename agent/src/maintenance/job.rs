//! Background jobs, and how they report findings.

use std::sync::{Arc, Mutex, PoisonError};

use contract::codes;
use contract::finding::Findings;

/// The part of a task that runs on a separate thread. It may report findings while it runs. Its result replaces them until the
/// next run.
pub(super) type Job = Box<dyn FnOnce(&SharedFindings) -> anyhow::Result<Findings> + Send>;

/// The last findings of a check or a job, shared with its thread.
#[derive(Clone, Default)]
pub(super) struct SharedFindings(Arc<Mutex<FindingsState>>);

#[derive(Default)]
struct FindingsState {
    findings: Findings,
    news: bool,
}

impl SharedFindings {
    pub(super) fn set(&self, findings: Findings) {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.news |= reported.findings != findings;
        reported.findings = findings;
    }

    pub(super) fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).findings.clone()
    }

    /// Whether findings have changed since this was last asked.
    pub(super) fn take_news(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).news)
    }
}

pub(super) fn failed(what: &str, error: &anyhow::Error) -> Findings {
    let action = "It is tried again; if it stays, look at the journal of kaas-agent";
    codes::MAINTENANCE_FAILED.finding(what, format!("looking after it failed: {error:#}"), action).into()
}
