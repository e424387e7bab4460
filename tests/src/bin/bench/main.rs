//! `make bench`: speed and memory as ratios against other programs in the same run.

mod boot;
mod handover;
mod pack;
mod plain;
mod swap;

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::bail;
use clap::{Parser, Subcommand};
use fleet::find_ova;
use lab::Tools;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use scenarios::{places, scenario};
use serde_json::json;

/// Measures speed and memory as ratios against other programs in the same run.
///
/// Run it as root from the project's directory, on a machine that does nothing else; `make bench` runs all parts. The
/// environment variable KAAS_OVA names the OVA, or the directory with one (`build` without it).
#[derive(Parser)]
struct Options {
    /// The part to run; without one, all of them
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Packing and unpacking the OVA's disk, against qemu-img: time and memory. 2 min
    Pack,
    /// From power-on to the agent's verdict and the console page, against plain Debian's login prompt. 10 min, emulated
    Boot,
    /// The swap of a node's VM, against its restart. 6 min
    Swap,
    /// The gap for who writes when the virtual IP is handed over, against its holder's power being cut. 4 min
    Handover,
    /// Runs a command as the only child of this process and prints its cost as JSON
    #[command(hide = true)]
    Measure {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let parts = Options::parse()
        .part
        .map_or_else(|| vec![Part::Pack, Part::Boot, Part::Swap, Part::Handover], |part| vec![part]);
    // A bench starts the measured command.
    let measures = matches!(parts[..], [Part::Measure { .. }]);
    let alone = if measures { Ok(None) } else { scenarios::runner::alone().map(Some).map_err(anyhow::Error::msg) };
    match alone.and_then(|_alone| parts.into_iter().try_for_each(run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(part: Part) -> anyhow::Result<()> {
    match part {
        Part::Pack => pack::bench(&find_ova(&places::named_ova())?, &Tools::at(scenario::tools()?.root())),
        Part::Boot => boot::bench(),
        Part::Swap => swap::bench(),
        Part::Handover => handover::bench(),
        Part::Measure { command } => measure(&command),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(command: &[OsString]) -> anyhow::Result<()> {
    let [program, arguments @ ..] = command else { bail!("no command to measure") };
    let start = Instant::now();
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status()?;
    if !status.success() {
        bail!("{}: {status}", program.to_string_lossy());
    }
    let wall = start.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let processors = (usage.user_time() + usage.system_time()).num_milliseconds() as f64 / 1000.0;
    println!("{}", json!({ "wall": wall, "processors": processors, "memory": usage.max_rss() }));
    Ok(())
}
