//! What a background job is, and how it tells what it finds.

use std::sync::{Arc, Mutex, PoisonError};

use contract::codes;
use contract::finding::Findings;

/// What is done on the thread. It may tell what it finds as it goes on, and ends
/// with what there is to say until the next time.
pub(super) type Job = Box<dyn FnOnce(&Told) -> anyhow::Result<Findings> + Send>;

/// Where an errand says what it finds.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<(Findings, bool)>>);

impl Told {
    /// Replaces what was said before.
    pub(super) fn say(&self, findings: Findings) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.1 |= said.0 != findings;
        said.0 = findings;
    }

    pub(super) fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Whether there is news since this was last asked.
    pub(super) fn news(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

/// Says that looking after something failed.
pub(super) fn failed(what: &str, error: &anyhow::Error) -> Findings {
    let action = "It is tried again; if it stays, look at the journal of kaas-agent";
    codes::CARE_FAILED.finding(what, format!("looking after it failed: {error:#}"), action).into()
}
