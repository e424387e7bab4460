//! `kaas support`: writes a support bundle of a control cluster. Changes nothing.
//!
//! 1. Reads objects, events, leases and the status of each node. An unreadable part becomes an error of the bundle. After
//!    the end of the time or Ctrl-C, all further parts are unreadable.
//! 2. Packs them, then reads and packs the logs one by one. A log that exceeds its share loses its oldest part.
//! 3. Writes the file, once it is complete.

mod fields;
mod gather;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use contract::ports;
use schemars::JsonSchema;
use serde::Serialize;
use support_bundle::{Archive, Keep, REMOVED};
use tokio::runtime::Builder;
use tokio::sync::watch;

use self::gather::{Document, Gathering, Unread};
use crate::control::{Bound, Control, ControlClusterArgs};
use crate::output::{Output, STOPPED, warn};
use crate::signals::{SignalPolicy, until_ended};
use crate::work::duration;

/// The largest size of `README.txt` and `errors.txt` together, in compressed bytes.
const INDEX: u64 = 64 << 10;

/// The longest time that a command may take: a year. It has an end, so that a sum of times has one.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How many times larger the share of a list is than the share of a log.
const WEIGHT: u64 = 4;

/// The options of `kaas support`.
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
    /// Output format. With json and yaml, progress goes to standard error
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
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
        let directory = format!("kaas-support-{cluster}-{}", stamp(now));
        anyhow::Ok((pack(gathering, &directory, now, limit)?, directory))
    };
    // On a separate thread, so that the operator can end the command early.
    let act = async |cancelled: watch::Receiver<bool>| {
        tokio::task::spawn_blocking(move || read(cancelled)).await.context("reading the control cluster")?
    };
    let ((content, parts, errors), directory) = until_ended(&runtime, SignalPolicy::WithPartsRead, act, || {})?;
    let path = to_file.clone().unwrap_or_else(|| PathBuf::from(format!("{directory}.tar.gz")));
    fleet::files::write_new(&path, &content)?;
    let report = Report { path, size: content.len() as u64, parts, errors };
    output.result(&report, || report.text())?;
    if report.errors.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    warn(&format!("error: the bundle is incomplete\n{}", lines(&report.errors)));
    Ok(ExitCode::from(STOPPED))
}

fn is_free(path: &Path) -> anyhow::Result<()> {
    let exists = path.symlink_metadata().is_ok();
    ensure!(!exists, "cannot write {}: the file exists\nhelp: give another name with --to-file", path.display());
    Ok(())
}

/// A time for file names, in UTC (ISO 8601, basic format): `20261121T143000Z`.
fn stamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string().replace(['-', ':'], "")
}

/// Packs the parts, and reads the logs. Returns the archive of at most `limit` bytes, its parts, and the unread ones.
fn pack(
    mut gathering: Gathering<'_>,
    directory: &str,
    now: SystemTime,
    limit: u64,
) -> anyhow::Result<(Vec<u8>, Vec<Part>, Vec<Unread>)> {
    let (documents, logs) = (std::mem::take(&mut gathering.documents), std::mem::take(&mut gathering.logs));
    let time = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let mut archive = Archive::new(Vec::new(), directory, time, limit);
    let (mut lists, mut rest) = (documents.len() as u64, logs.len() as u64);
    let mut parts = Vec::new();
    for Document { part, text } in documents {
        let share = archive.left().saturating_sub(INDEX) * WEIGHT / (WEIGHT * lists + rest);
        lists -= 1;
        let cut = archive.add(&part, &text, share, Keep::Beginning)?;
        parts.push(Part { name: part, cut });
    }
    for log in logs {
        let share = archive.left().saturating_sub(INDEX) / rest;
        rest -= 1;
        if let Some(text) = gathering.log(&log) {
            let cut = archive.add(&log.part, &text, share, Keep::End)?;
            parts.push(Part { name: log.part, cut });
        }
    }
    let errors = gathering.errors;
    if !errors.is_empty() {
        let left = archive.left() / 2;
        archive.add("errors.txt", &format!("{}\n", lines(&errors)), left, Keep::Beginning)?;
    }
    let left = archive.left();
    archive.add("README.txt", &index(directory, &parts, &errors), left, Keep::Beginning)?;
    let content = archive.finish()?;
    ensure!(content.len() as u64 <= limit, "the bundle has {} bytes, more than its limit", content.len());
    Ok((content, parts, errors))
}

/// The unread parts, one a line.
fn lines(errors: &[Unread]) -> String {
    let line = |error: &Unread| format!("{}: {}", error.part, error.reason.replace('\n', " "));
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn index(directory: &str, parts: &[Part], errors: &[Unread]) -> String {
    let mut text = format!(
        "{directory}\n\nA support bundle of a KaaS control cluster. All files are plain text or JSON. Secrets were\n\
         removed: each leaves {REMOVED} behind, or its field is missing. Logs that are too long lose their\n\
         oldest part, lists their end.\n\n"
    );
    if !errors.is_empty() {
        text += "errors.txt names the parts that could not be read.\n\n";
    }
    for Part { name, cut } in parts {
        let cut = if *cut == 0 { String::new() } else { format!("  CUT: {cut} bytes were left out") };
        text += &format!("{name}{cut}\n");
    }
    text
}

impl Report {
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
    fn index_names_cut_parts_and_errors() {
        let parts = [("a.json", 0), ("b.txt", 7)].map(|(name, cut)| Part { name: name.to_owned(), cut });
        let error = Unread { part: "c.json".to_owned(), reason: "forbidden\nfor you".to_owned() };
        let text = index("kaas-support-x", &parts, std::slice::from_ref(&error));
        assert!(text.ends_with("\na.json\nb.txt  CUT: 7 bytes were left out\n"), "{text}");
        assert!(text.contains("errors.txt"), "{text}");
        assert!(!index("kaas-support-x", &parts, &[]).contains("errors.txt"));
        let report = Report { path: "x.tar.gz".into(), size: 1025, parts: parts.into(), errors: vec![error] };
        assert_eq!(report.text(), "x.tar.gz: 2 KiB, 2 parts, 1 of them cut");
        assert_eq!(lines(&report.errors), "c.json: forbidden for you");
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
