//! `kaas provider probe`: tries the program's assumptions about vCenter in one folder, and removes what it made.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fleet::vcenter::probe::{Answered, Probed, Told, Verdict, rows};
use serde_json::json as value;

use crate::cluster_file::{ClusterFile, Probing};
use crate::confirm::ask;
use crate::output::{Output, json, result, warn};
use crate::work::Over;

/// The operator has ended it.
const CANCELLED: u8 = 3;
/// A row differs.
const DIFFERS: u8 = 4;

/// What `probe` is given.
#[derive(Args)]
pub struct Probe {
    /// A file as for `kaas deploy`; [provider.vsphere] and the OVA are used.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Also write the answers to this file, as JSON without names and addresses.
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// How long to wait for the guest's first word after power-on, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    guest_limit: u64,
    /// List the rows and where they would be tried, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Begin without asking.
    #[arg(long)]
    yes: bool,
    /// How to print the answers. With JSON, progress goes to standard error.
    #[arg(long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    over: Over,
}

/// Runs the command. Exit statuses: 0 when no row differs, 3 when the operator has ended it, 4 when a row differs.
///
/// # Errors
/// The vCenter does not answer, something is missing, or not all that was made could be removed.
pub fn probe(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let Probe { file, to_file, guest_limit, dry_run, yes, output, over } = arguments;
    let file = ClusterFile::read(file)?;
    let place = file.provider.words();
    if *dry_run {
        return planned(&place, *output).map(|()| ExitCode::SUCCESS);
    }
    let question = format!(
        "The probe imports the OVA in {place}, makes two VMs there, powers one on with its network disconnected, and removes all of it. \
         Type yes to begin"
    );
    if !yes && ask(&question, "give --yes")? != "yes" {
        bail!("not confirmed; nothing was changed");
    }
    let tell = |told: Told<'_>| match told {
        Told::Words(words) => output.tell(words),
        Told::Answered(number, of, answered) => output.tell(&line(number, of, answered)),
    };
    let (cluster, guest) = (&file.name.value, Duration::from_secs(*guest_limit));
    let probing = Probing { cluster, ova: &file.ova, guest, over: over.take() };
    let Probed { report, left, is_cancelled } = file.provider.probe(&probing, &tell)?;
    let count = |verdict| report.rows.iter().filter(|row| row.verdict == verdict).count();
    let (same, differ, untried) = (count(Verdict::AsAssumed), count(Verdict::Differs), count(Verdict::NotTried));
    if let Some(path) = to_file {
        let text = serde_json::to_string_pretty(&report)?;
        fleet::files::write(&std::path::absolute(path).context("finding the file's directory")?, &(text + "\n"))?;
    }
    match output {
        Output::Json => json(&report)?,
        Output::Text => result(&format!("{same} as assumed, {differ} differ, {untried} not tried"))?,
    }
    if !left.is_empty() {
        bail!("not all was removed: {}\nhelp: run the command again, which removes it first", left.join("; "));
    }
    if is_cancelled {
        warn("ended before the last row; what was made is removed");
        return Ok(ExitCode::from(CANCELLED));
    }
    Ok(ExitCode::from(if differ == 0 { 0 } else { DIFFERS }))
}

fn line(number: usize, of: usize, answered: &Answered) -> String {
    let Answered { row, assumption, observation, verdict } = answered;
    format!("{number}/{of} {row}: {verdict}\n    assumed: {assumption}\n    seen: {observation}")
}

fn planned(place: &str, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Json => {
            let rows: Vec<_> = rows().map(|(row, assumption)| value!({"row": row, "assumption": assumption})).collect();
            json(&value!({"place": place, "rows": rows}))
        }
        Output::Text => {
            let rows: Vec<String> = rows().map(|(row, assumption)| format!("  {row}: {assumption}")).collect();
            result(&format!("in {place} would be tried:\n{}", rows.join("\n")))
        }
    }
}
