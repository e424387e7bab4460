//! Keeps the status and tells it to everybody who listens: the file, systemd,
//! the journal and the consoles.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sd_notify::NotifyState;

use super::console::Consoles;
use super::{PATH, Status};
use crate::files;

/// A handle on the one status; clones share it.
#[derive(Clone)]
pub struct Reporter {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    status: Status,
    summary: String,
    file: PathBuf,
    consoles: Consoles,
}

impl Reporter {
    /// A reporter for the system below `root` (`/` outside of tests).
    pub fn new(root: &Path, status: Status) -> Self {
        let inner = Inner {
            status,
            summary: String::new(),
            file: root.join(PATH.trim_start_matches('/')),
            consoles: Consoles::new(root),
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Changes the status, and tells it if that changed anything.
    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inner.status.clone();
        change(&mut inner.status);
        if before != inner.status || inner.summary.is_empty() {
            inner.tell(&before);
        }
    }

    /// The status now.
    pub fn status(&self) -> Status {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).status.clone()
    }
}

impl Inner {
    /// Nobody who cannot be told stops the agent.
    fn tell(&mut self, before: &Status) {
        let summary = self.status.summary();
        if summary != self.summary {
            log::info!("{summary}");
            let _ = sd_notify::notify(&[NotifyState::Status(&summary)]);
            self.summary = summary;
        }
        for finding in self.status.findings.iter() {
            if !before.findings.iter().any(|known| known == finding) {
                log::warn!("{finding}");
            }
        }
        match serde_json::to_vec_pretty(&self.status) {
            Ok(text) => {
                if let Err(error) = files::write_atomically(&self.file, &text, 0o644) {
                    log::warn!("writing {}: {error}", self.file.display());
                }
            }
            Err(error) => log::warn!("writing the status: {error}"),
        }
        self.consoles.show(&self.status);
    }
}
