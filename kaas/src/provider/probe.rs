//! `kaas provider probe`: tries the program's assumptions about vCenter in one folder, and removes what it made.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fleet::vcenter::probe::{Probed, Verdict, rows};

use crate::cluster_file::{ClusterFile, Probing};
use crate::confirm::ask;
use crate::output::{result, warn};
use crate::work::Over;

/// The operator ended the run.
const CANCELLED: u8 = 3;
/// A row differs.
const DIFFERS: u8 = 4;

/// The arguments of `probe`.
#[derive(Args)]
pub struct Probe {
    /// Use the vCenter, the name and the OVA of this file, which is as for `kaas deploy`
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Also write the answers to this file, as JSON without names and addresses
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// Wait so many seconds for the guest's first statement after power-on
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    guest_limit: u64,
    /// List the rows, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Begin without a question
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    over: Over,
}

/// Runs the command. Exit statuses: 0 if no row differs, 3 if the operator ended the run, 4 if a row differs.
///
/// # Errors
/// The vCenter does not answer, something is missing, or something could not be removed.
pub fn probe(arguments: &Probe) -> anyhow::Result<ExitCode> {
    let Probe { file, to_file, guest_limit, dry_run, yes, over } = arguments;
    let file = ClusterFile::read(file)?;
    let place = file.provider.words();
    if *dry_run {
        let rows: Vec<String> = rows().map(|(row, assumption)| format!("  {row}: {assumption}")).collect();
        return result(&format!("in {place} would be tried:\n{}", rows.join("\n"))).map(|()| ExitCode::SUCCESS);
    }
    let question = format!(
        "The probe imports the OVA in {place}, makes two VMs there, powers one on with its network disconnected, and removes all of it. \
         Type yes to begin"
    );
    if !yes && ask(&question, "give --yes")? != "yes" {
        bail!("not confirmed; nothing was changed");
    }
    let (cluster, guest) = (&file.name.value, Duration::from_secs(*guest_limit));
    let probing = Probing { cluster, ova: &file.ova, guest, over: over.take() };
    let Probed { report, left, is_cancelled } = file.provider.probe(&probing)?;
    let count = |verdict| report.rows.iter().filter(|row| row.verdict == verdict).count();
    let [same, differ, untried] = [Verdict::AsAssumed, Verdict::Differs, Verdict::NotTried].map(count);
    if let Some(path) = to_file {
        let text = serde_json::to_string_pretty(&report)?;
        fleet::files::write(&std::path::absolute(path).context("finding the file's directory")?, &(text + "\n"))?;
    }
    result(&format!("{same} as assumed, {differ} differ, {untried} not tried"))?;
    if !left.is_empty() {
        bail!("cannot remove {}\nhelp: run the command again, which removes it first", left.join("; "));
    }
    if is_cancelled {
        warn("ended before the last row; what was made is removed");
        return Ok(ExitCode::from(CANCELLED));
    }
    Ok(ExitCode::from(if differ == 0 { 0 } else { DIFFERS }))
}
