//! `kaas image audit`: what published advisories say about what images are made of.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use image::audit::{Report, Row, Status};
use image::cache::Cache;
use image::progress::Progress;
use image::{AuditRequest, audit};
use serde_json::json;

use crate::output::{self, Output};
use crate::sources::Sources;

/// The exit status with an open advisory.
const OPEN: u8 = 3;

/// `kaas image audit`
#[derive(Args)]
#[command(after_help = "Example: `kaas image audit image/specs/control-plane.toml image/specs/tenant.toml`")]
pub struct Audit {
    /// Specs of the images. What several of them share is checked once.
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    /// Check against pinned data only: Go modules. Expired judgements and components that are not built do not fail.
    #[arg(long)]
    pinned: bool,
    /// Format of the result.
    #[arg(long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

/// Runs the command.
///
/// # Errors
/// When a spec or a judgement is wrong, or a database cannot be reached.
pub fn run(arguments: Audit, cache: &Cache) -> Result<ExitCode> {
    let progress = Progress::on_stderr();
    let Audit { specs, pinned, output, sources } = arguments;
    let request = AuditRequest { specs: &specs, pinned, sources: sources.into(), now: SystemTime::now() };
    let report = audit(&request, cache, &progress)?;
    progress.finish();
    match output {
        Output::Json => {
            let mut value = serde_json::to_value(&report)?;
            value["open"] = json!(report.fails(pinned));
            output::json(&value)?;
        }
        Output::Text => output::result(&text(&report))?,
    }
    Ok(if report.fails(pinned) { ExitCode::from(OPEN) } else { ExitCode::SUCCESS })
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    for row in report.rows.iter().filter(|row| row.status != Status::NotLinked) {
        lines.push(line(row));
    }
    lines.extend(report.stale.iter().map(|judgement| format!("stale      {judgement}: remove the judgement")));
    lines.extend(report.unchecked.iter().map(|what| format!("unchecked  {what}")));
    lines.extend(report.checked.iter().map(|what| format!("checked    {what}")));
    let count = |status| report.count(status);
    lines.push(format!(
        "{} unjudged, {} expired, {} undecided, {} judged, {} not linked",
        count(Status::Unjudged),
        count(Status::Expired),
        count(Status::Undecided),
        count(Status::Judged),
        count(Status::NotLinked),
    ));
    if count(Status::Undecided) > 0 {
        lines.push("help: build the images, then run the command again: it reads the linked functions".to_owned());
    }
    if count(Status::Unjudged) + count(Status::Expired) > 0 {
        lines.push("help: raise the version, or judge the advisory in image/audit/judged.toml".to_owned());
    }
    lines.join("\n")
}

fn line(row: &Row) -> String {
    let status = match row.status {
        Status::Unjudged => "unjudged",
        Status::Expired => "expired",
        Status::Undecided => "undecided",
        Status::Judged => "judged",
        Status::NotLinked => "not linked",
    };
    let fixed = row.fixed.as_deref().map_or("no fix".to_owned(), |version| format!("fixed in {version}"));
    let why = row.reason.as_deref().unwrap_or(&row.advisory.summary);
    format!("{status:10} {:22} {:16} {} ({fixed}): {why}", row.component, row.advisory.id, row.part)
}
