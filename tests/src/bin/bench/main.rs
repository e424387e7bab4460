//! `make bench`: speed and memory as ratios against other programs in the same run.
//!
//! `bench` runs all of it, `bench PART` a part.

mod boot;
mod handover;
mod pack;
mod plain;
mod swap;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::bail;
use fleet::lab::{Tools, find_ova};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use scenarios::scenario;
use serde_json::json;

/// The first argument by which this program runs another one and says what that cost.
const MEASURE: &str = "--measure";
/// The parts, in the order in which they are run.
const PARTS: [&str; 4] = ["pack", "boot", "swap", "handover"];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, command)) if first == MEASURE => measure(command),
        Some((part, [])) => bench(&part.to_string_lossy()),
        Some(_) => Err(anyhow::anyhow!("one part at a time: {}", PARTS.join(", "))),
        None => PARTS.into_iter().try_for_each(bench),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(part: &str) -> anyhow::Result<()> {
    let ova = find_ova(&env::var_os("KAAS_OVA").map_or_else(|| PathBuf::from("build"), PathBuf::from))?;
    match part {
        "pack" => pack::bench(&ova, &Tools::at(scenario::tools()?.root())),
        "boot" => boot::bench(),
        "swap" => swap::bench(),
        "handover" => handover::bench(),
        other => bail!("there is no part {other}; there are {}", PARTS.join(", ")),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a command as the only child of this process and prints its cost.
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
