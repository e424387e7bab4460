//! `kaas provider probe`: tries the program's assumptions about vCenter in one folder, and removes what it made.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fleet::Cancelled;
use fleet::vcenter::probe::{AS_ASSUMED, DIFFERS, LEFT, NOT_TRIED};

use crate::cluster_file::ClusterFile;
use crate::confirm::ask;
use crate::output::{Output, warn};
use crate::work::{TakeOverArgs, advised, duration};

#[derive(Args)]
pub struct Probe {
    /// Use the vCenter, the name and the OVA of this file, which is as for `kaas control create`
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Also write the answers to this file, as JSON without names and addresses
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// How long to wait for the guest's first statement after power-on
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    guest_timeout: Duration,
    /// Begin without a question
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    over: TakeOverArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs the command. Exit statuses: 0 if no row differs, 3 if the operator ended the run, 4 if a row differs.
pub fn probe(Probe { file, to_file, guest_timeout, yes, over, output }: &Probe) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(file)?;
    let question = format!(
        "The probe imports the OVA in {}, makes two VMs and a First Class Disk there, and powers one VM on with its network disconnected. In a \
         cluster of hosts it sets and removes an override of vSphere HA for its VM. It removes all of it. Type yes to begin",
        file.provider.words()
    );
    if !yes && ask(&question, "give --yes")? != "yes" {
        bail!("not confirmed; nothing was changed");
    }
    let report = file.provider.probe(&file.name.value, &file.ova, *guest_timeout, over.take());
    let report = match report {
        Err(error) if error.is::<Cancelled>() => {
            warn(&format!("{error:#}"));
            return Ok(ExitCode::from(3));
        }
        report => report.map_err(advised)?,
    };
    let written: anyhow::Result<()> = to_file.as_ref().map_or(Ok(()), |path| {
        let path = std::path::absolute(path).context("finding the file's directory")?;
        fleet::files::write(&path, &(serde_json::to_string_pretty(&report)? + "\n"))
    });
    let [same, differ, untried] = [AS_ASSUMED, DIFFERS, NOT_TRIED].map(|verdict| report.count(verdict));
    output.result(&report, || format!("{same} as assumed, {differ} differ, {untried} not tried"))?;
    if !report.left.is_empty() {
        if let Err(error) = &written {
            warn(&format!("{error:#}"));
        }
        bail!("cannot remove {}\nhelp: {LEFT}", report.left.join("; "));
    }
    written?;
    if report.is_cancelled {
        warn("ended before the last row; what was made is removed");
        return Ok(ExitCode::from(3));
    }
    Ok(ExitCode::from(if differ == 0 { 0 } else { 4 }))
}
