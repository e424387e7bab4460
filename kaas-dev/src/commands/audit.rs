//! `kaas-dev image audit`: compares the parts of images with published advisories.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use image::audit::{self, Report, Row, Status};
use image::cache::Cache;
use image::progress::Progress;
use kaas::output::Output;

use crate::builder::Sources;

/// The exit status with an open advisory.
const OPEN: u8 = 3;
/// The exit status without an open advisory, if a part could not be checked.
const UNCHECKED: u8 = 4;

/// `kaas-dev image audit`
#[derive(Args)]
#[command(after_help = "Example: `kaas-dev image audit image/specs/control-plane.toml image/specs/tenant.toml`")]
pub struct Audit {
    /// Specs of the images. Parts that several images share are checked once
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    /// Check against pinned data only: Go modules. Expired judgements and components that are not built do not fail
    #[arg(long)]
    pinned: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

pub fn run(arguments: Audit, cache: &Cache) -> Result<ExitCode> {
    let progress = Progress::on_stderr();
    let Audit { specs, pinned, output, sources } = arguments;
    let report = audit::run(&specs, pinned, &sources.into(), SystemTime::now(), cache, &progress)?;
    progress.finish();
    output.result(&report, || text(&report))?;
    Ok(match report.fails(pinned) {
        true => ExitCode::from(OPEN),
        false if !pinned && !report.unchecked.is_empty() => ExitCode::from(UNCHECKED),
        false => ExitCode::SUCCESS,
    })
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.rows.iter().map(line).collect();
    lines.extend(report.unchecked.iter().map(|what| format!("unchecked  {what}")));
    lines.extend(report.checked.iter().map(|what| format!("checked    {what}")));
    let [unjudged, expired, judged] = [Status::Unjudged, Status::Expired, Status::Judged].map(|of| report.count(of));
    lines.push(format!("{unjudged} unjudged, {expired} expired, {judged} judged"));
    if unjudged + expired > 0 {
        lines.push("help: raise the version, or judge the advisory in image/audit/judged.toml".to_owned());
    }
    lines.join("\n")
}

fn line(row: &Row) -> String {
    let Row { status, component, id, part, fixed, text, .. } = row;
    let status = match status {
        Status::Unjudged => "unjudged",
        Status::Expired => "expired",
        Status::Judged => "judged",
    };
    let fixed = fixed.as_deref().map_or("no fix".to_owned(), |version| format!("fixed in {version}"));
    format!("{status:10} {component:22} {id:16} {part} ({fixed}): {text}")
}
