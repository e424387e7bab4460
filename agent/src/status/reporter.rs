//! Stores the status and writes changes to the file, systemd, the journal, the consoles and guestinfo.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use contract::codes;
use contract::finding::Findings;
use sd_notify::NotifyState;

use super::console::Consoles;
use super::fingerprints::FingerprintPublisher;
use super::statement::StatementWriter;
use super::watchdog::Watchdog;
use super::{PATH, Status};
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::vmware::hardware::Hardware;
use crate::intake::environment::guestinfo::GuestInfo;

/// A handle on the only status. Clones share it.
#[derive(Clone)]
pub struct Reporter {
    inner: Arc<Mutex<Inner>>,
    watchdog: Watchdog,
}

struct Inner {
    status: Status,
    summary: String,
    file: PathBuf,
    consoles: Consoles,
    shown: FingerprintPublisher<Hardware>,
    statement_writer: StatementWriter,
    /// Findings that every change of the status keeps.
    lasting: Findings,
}

/// The guestinfo variable with the summary and the findings, for administrators of the hypervisor.
const GUESTINFO: &str = "guestinfo.kaas.status";

/// The largest text in that variable, in bytes. A request may be much larger.
const GUESTINFO_LIMIT: usize = 16 << 10;

impl Reporter {
    pub fn new(root: &Path, status: Status) -> Self {
        let file = Platform::detect(root).ok().and_then(|platform| platform.fingerprints_file());
        let inner = Inner {
            status,
            summary: String::new(),
            file: files::below(root, PATH),
            consoles: Consoles::new(root),
            shown: FingerprintPublisher::new(GuestInfo::of_this_machine(), file),
            statement_writer: StatementWriter::new(root),
            lasting: Findings::default(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), watchdog: Watchdog::default() }
    }

    pub fn start_watchdog(&self) {
        self.watchdog.start();
    }

    /// The part is alive, and must call this again within `time`. Otherwise systemd kills the agent and starts it
    /// again.
    pub fn alive(&self, part: &'static str, time: Duration) {
        self.watchdog.alive(part, Instant::now() + time);
    }

    /// Changes the status, and publishes it if it has changed.
    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inner.status.clone();
        change(&mut inner.status);
        // The part that set the findings does not know the lasting ones.
        let mut all = std::mem::take(&mut inner.status.findings).without(&inner.lasting);
        all.extend(inner.lasting.clone());
        inner.status.findings = all;
        // It may contain an answer of another machine, and appears on consoles, on a page and in a file.
        if let Some(waiting) = inner.status.work.as_mut().and_then(|work| work.waiting.as_mut()) {
            *waiting = codes::plain(std::mem::take(waiting));
        }
        if before != inner.status || inner.summary.is_empty() {
            inner.tell(&before);
        }
    }

    /// Shows these findings with all others, in place of those of the last call.
    pub fn set_lasting(&self, findings: Findings) {
        let before = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut inner.lasting, findings.clone())
        };
        if before != findings {
            self.update(|status| status.findings = std::mem::take(&mut status.findings).without(&before));
        }
    }

    /// Makes the hypervisor show this node's fingerprints, if it has some. True if another program has overwritten them
    /// since the agent has started.
    pub fn show_fingerprints(&self) -> anyhow::Result<bool> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprints = inner.status.fingerprints;
        fingerprints.map_or(Ok(false), |fingerprints| inner.shown.show(fingerprints))
    }

    pub fn status(&self) -> Status {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).status.clone()
    }
}

impl Inner {
    /// Publishes the status. A failure does not stop the agent.
    fn tell(&mut self, before: &Status) {
        let summary = self.status.summary();
        if summary != self.summary {
            log::info!("{summary}");
            let _ = sd_notify::notify(&[NotifyState::Status(&summary)]);
        }
        if summary != self.summary || before.findings != self.status.findings {
            self.tell_hypervisor(&summary);
        }
        self.summary = summary;
        if let Err(error) = self.statement_writer.say(&self.status, self.shown.guestinfo(), SystemTime::now()) {
            log::debug!("saying how this node is where its hypervisor shows it: {error:#}");
        }
        // A failure is a finding of maintenance, which tries again.
        if before.fingerprints != self.status.fingerprints
            && let Some(fingerprints) = self.status.fingerprints
            && let Err(error) = self.shown.show(fingerprints)
        {
            log::warn!("showing the node's fingerprints to the hypervisor: {error:#}");
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
        self.consoles.show(&self.status, self.statement_writer.line());
    }

    fn tell_hypervisor(&mut self, summary: &str) {
        let Some(guestinfo) = self.shown.guestinfo() else { return };
        let mut text = format!("{summary}\n{}", self.status.findings);
        let end = (0..=GUESTINFO_LIMIT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        if let Err(error) = guestinfo.set(GUESTINFO, &text) {
            log::debug!("telling the hypervisor: {error}");
        }
    }
}
