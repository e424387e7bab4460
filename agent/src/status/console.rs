//! Writes a line for each change to the system console, where a serial port records it. [`crate::faces::console`] has
//! the page on the terminals.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::statement::AnnouncedStatement;
use super::{Phase, Status};

/// A terminal that is not read must not block the agent, and opening one must not make it the agent's controlling
/// terminal (open(2)).
const FLAGS: i32 = nix::libc::O_NOCTTY | nix::libc::O_NONBLOCK;

pub(super) struct Consoles {
    lines: PathBuf,
    summary: String,
    findings: String,
    /// The fingerprints that were written, and whether all steps were done then.
    fingerprints: (String, bool),
    announced: AnnouncedStatement,
}

impl Consoles {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            lines: root.join("dev/console"),
            summary: String::new(),
            findings: String::new(),
            fingerprints: Default::default(),
            announced: AnnouncedStatement::default(),
        }
    }

    /// Shows a status, and the node's statement if that has changed. A missing or broken terminal is no error.
    pub(super) fn show(&mut self, status: &Status, statement: Option<(AnnouncedStatement, String)>) {
        let summary = format!("kaas: {}\r\n", status.summary());
        let findings: String = status.findings.iter().map(|finding| format!("kaas: {finding}\r\n")).collect();
        let line = status.fingerprints.map_or_else(String::new, |fingerprints| format!("{}\r\n", fingerprints.line()));
        let fingerprints = (line, status.phase == Phase::Done);
        // A line of the kernel may interrupt them, so they are written twice. The last lines are always the node's
        // status.
        if !fingerprints.0.is_empty() && fingerprints != self.fingerprints {
            write(&self.lines, &format!("{}{summary}{findings}", fingerprints.0));
            (self.summary, self.findings, self.fingerprints) = (summary, findings, fingerprints);
            return;
        }
        if let Some((told, line)) = statement
            && told != self.announced
        {
            // When a worker reports that it has joined, the kernel reports that devices of its pods appear.
            write(&self.lines, &format!("{line}\r\n{line}\r\n{summary}{findings}"));
            (self.summary, self.findings, self.announced) = (summary, findings, told);
            return;
        }
        // Findings are written again when they change, not with each step.
        match (summary == self.summary, findings == self.findings) {
            (true, true) => return,
            (false, true) => write(&self.lines, &summary),
            (_, false) => write(&self.lines, &format!("{summary}{findings}")),
        }
        (self.summary, self.findings) = (summary, findings);
    }
}

fn write(terminal: &Path, text: &str) {
    if let Ok(mut terminal) = OpenOptions::new().write(true).custom_flags(FLAGS).open(terminal) {
        let _ = terminal.write_all(text.as_bytes());
    }
}
