//! What a background job is, and how it reports what it finds.

use std::sync::{Arc, Mutex, PoisonError};

use contract::codes;
use contract::finding::Findings;

/// What is done on the thread. It may report what it finds as it goes on, and ends
/// with what there is to say until the next time.
pub(super) type Job = Box<dyn FnOnce(&SharedFindings) -> anyhow::Result<Findings> + Send>;

/// What a check or a job has last found, shared with the thread that it runs on.
#[derive(Clone, Default)]
pub(super) struct SharedFindings(Arc<Mutex<FindingsState>>);

#[derive(Default)]
struct FindingsState {
    findings: Findings,
    news: bool,
}

impl SharedFindings {
    /// Replaces what was reported before.
    pub(super) fn set(&self, findings: Findings) {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.news |= reported.findings != findings;
        reported.findings = findings;
    }

    pub(super) fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).findings.clone()
    }

    /// Whether there is news since this was last asked.
    pub(super) fn take_news(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).news)
    }
}

/// Says that looking after something failed.
pub(super) fn failed(what: &str, error: &anyhow::Error) -> Findings {
    let action = "It is tried again; if it stays, look at the journal of kaas-agent";
    codes::MAINTENANCE_FAILED.finding(what, format!("looking after it failed: {error:#}"), action).into()
}
