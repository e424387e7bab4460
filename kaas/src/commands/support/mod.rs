//! `kaas support`: writes a support bundle of a control cluster. Changes nothing.
//!
//! 1. Reads objects, events, leases and the status of each node. An unreadable part becomes an error of the bundle. After
//!    the end of the time or Ctrl-C, all further parts are unreadable.
//! 2. Packs them, then reads and packs the logs one by one. A log that exceeds its share loses its oldest part.
//! 3. Writes the file, once it is complete.

mod gather;

use std::mem::take;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use contract::ports;
use schemars::JsonSchema;
use serde::Serialize;
use support_bundle::{Bundle, Entry, Keep, Outcome, directory_name};
use tokio::runtime::Builder;
use tokio::sync::watch;

use self::gather::{Document, Gathering, Unread};
use crate::control::{Bound, Control, ControlClusterArgs};
use crate::output::{Output, STOPPED, warn};
use crate::signals::{SignalPolicy, until_ended};
use crate::work::duration;

/// The longest time that a command may take: a year. It has an end, so that a sum of times has one.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How many times larger the share of a list is than the share of a log.
const WEIGHT: u64 = 4;

#[derive(Args)]
pub struct Support {
    /// File for the bundle, which must not exist. Default: kaas-support-CLUSTER-DATE.tar.gz in the current directory
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// Largest size of the bundle in MiB. Longer logs lose their oldest part
    #[arg(long, value_name = "MIB", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=256))]
    limit: u64,
    /// How long the command may take. After that, the bundle has the parts that were read, and the command ends with status 4
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, help_heading = "Waiting")]
    timeout: Duration,
    /// Port of the nodes' endpoint
    #[arg(long, default_value_t = ports::NODE, hide = true)]
    port: u16,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    at: ControlClusterArgs,
}

/// The result of the command.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Path of the bundle.
    path: PathBuf,
    /// Size of the bundle in bytes.
    size: u64,
    parts: Vec<Part>,
    errors: Vec<Unread>,
}

/// A file of the bundle.
#[derive(Debug, Serialize, JsonSchema)]
struct Part {
    name: String,
    /// How many bytes were cut off: the beginning of a log, the end of a list.
    cut: usize,
}

/// Writes a bundle. Exit statuses: 0 if it is complete, 4 if a part could not be read.
pub fn run(arguments: &Support) -> anyhow::Result<ExitCode> {
    let Support { to_file, limit, timeout, port, output, at } = arguments;
    let deadline = Instant::now() + (*timeout).min(LONGEST);
    // A taken name ends the command before it reads anything. The write checks the name again.
    to_file.as_deref().map_or(Ok(()), is_free)?;
    let selected = at.selected()?;
    let control = Control::of(&selected)?;
    control.reach().map_err(|error| {
        let help = "on each node, run `kaas-agent support-bundle` as root";
        anyhow!("the API server of the control cluster does not answer: {error:#}\nhelp: {help}")
    })?;
    let address = selected.credentials.address().map(|address| address.ip().to_string());
    let (limit, port, output) = (limit << 20, *port, *output);
    let runtime = Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let read = move |cancelled: watch::Receiver<bool>| {
        let control = control.until(Bound { deadline, cancelled });
        let tell = |what: &str| output.tell(what);
        let gathering = Gathering::new(&control, port, &tell);
        let cluster = gathering.cluster.clone().or(address).unwrap_or_else(|| "control".to_owned());
        let now = SystemTime::now();
        let directory = directory_name(&cluster, now);
        anyhow::Ok((pack(gathering, &directory, now, limit)?, directory))
    };
    // On a separate thread, so that the operator can end the command early.
    let act = async |cancelled: watch::Receiver<bool>| {
        tokio::task::spawn_blocking(move || read(cancelled)).await.context("reading the control cluster")?
    };
    let ((content, entries), directory) = until_ended(&runtime, SignalPolicy::WithPartsRead, act, || {})?;
    let path = to_file.clone().unwrap_or_else(|| PathBuf::from(format!("{directory}.tar.gz")));
    fleet::files::write_new(&path, &content)?;
    let report = Report::new(path, content.len() as u64, entries);
    output.result(&report, || report.text())?;
    if report.errors.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let errors: Vec<String> = report.errors.iter().map(|error| line(&error.part, &error.reason)).collect();
    warn(&format!("error: the bundle is incomplete\n{}", errors.join("\n")));
    Ok(ExitCode::from(STOPPED))
}

fn is_free(path: &Path) -> anyhow::Result<()> {
    let exists = path.symlink_metadata().is_ok();
    ensure!(!exists, "cannot write {}: the file exists\nhelp: give another name with --to-file", path.display());
    Ok(())
}

/// Packs the parts, and reads the logs. Returns the archive of at most `limit` bytes, and its parts.
fn pack(
    mut gathering: Gathering<'_>,
    directory: &str,
    now: SystemTime,
    limit: u64,
) -> anyhow::Result<(Vec<u8>, Vec<Entry>)> {
    let weights = WEIGHT * gathering.documents.len() as u64 + gathering.logs.len() as u64 + 1;
    let mut bundle = Bundle::new(Vec::new(), directory, now, limit, weights);
    for Unread { part: name, reason } in take(&mut gathering.errors) {
        bundle.add(&part(&name, 0, Keep::Beginning), Err(reason))?;
    }
    for Document { part: name, text } in take(&mut gathering.documents) {
        bundle.add(&part(&name, WEIGHT, Keep::Beginning), Ok(text))?;
    }
    for log in take(&mut gathering.logs) {
        bundle.add(&part(&log.part, 1, Keep::End), gathering.log(&log))?;
    }
    let errors: String = bundle.failed().map(|(name, reason)| line(name, reason) + "\n").collect();
    if !errors.is_empty() {
        bundle.add(&part("errors.txt", 1, Keep::Beginning), Ok(errors))?;
    }
    let (content, entries) = bundle.finish("a KaaS control cluster")?;
    ensure!(content.len() as u64 <= limit, "the bundle has {} bytes, more than its limit", content.len());
    Ok((content, entries))
}

fn part(name: &str, weight: u64, keep: Keep) -> support_bundle::Part<'_> {
    support_bundle::Part { name, about: "", weight, keep }
}

/// An unread part as a line.
fn line(part: &str, reason: &str) -> String {
    format!("{part}: {}", reason.replace('\n', " "))
}

impl Report {
    fn new(path: PathBuf, size: u64, entries: Vec<Entry>) -> Self {
        let mut report = Self { path, size, parts: Vec::new(), errors: Vec::new() };
        for Entry { name, outcome, .. } in entries {
            match outcome {
                Outcome::Whole => report.parts.push(Part { name, cut: 0 }),
                Outcome::Cut { bytes } => report.parts.push(Part { name, cut: bytes }),
                Outcome::Failed { reason } => report.errors.push(Unread { part: name, reason }),
            }
        }
        report
    }

    fn text(&self) -> String {
        let cut = self.parts.iter().filter(|part| part.cut > 0).count();
        let cut = if cut == 0 { String::new() } else { format!(", {cut} of them cut") };
        let (path, size, count) = (self.path.display(), self.size.div_ceil(1024), self.parts.len());
        format!("{path}: {size} KiB, {count} parts{cut}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_counts_parts_and_cut_ones() {
        let parts = [("a.json", 0), ("b.txt", 7)].map(|(name, cut)| Part { name: name.to_owned(), cut });
        let report = Report { path: "x.tar.gz".into(), size: 1025, parts: parts.into(), errors: Vec::new() };
        assert_eq!(report.text(), "x.tar.gz: 2 KiB, 2 parts, 1 of them cut");
        assert_eq!(line("c.json", "forbidden\nfor you"), "c.json: forbidden for you");
    }

    #[test]
    fn existing_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.tar.gz");
        is_free(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let refused = is_free(&path).unwrap_err().to_string();
        assert!(refused.contains("the file exists") && refused.contains("--to-file"), "{refused}");
    }
}
