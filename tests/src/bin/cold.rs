//! `make cold`: what a newcomer does, in a bare container: a clean clone of what is committed, then `make`.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use scenarios::bare::{BareMachine, LENT_RUST};
use scenarios::runner;

/// Runs make in a clean clone on a bare machine, as root, and says how long it took.
///
/// The machine is a container with Debian's smallest system and make. It shares the host's network, and gets its
/// mirrors, proxies and registries. Nothing else of the host is seen in it: every cache is empty.
#[derive(Parser)]
struct Options {
    /// Debian's release
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// Lend it this host's Rust, read-only, for where none can be downloaded
    #[arg(long)]
    lend_rust: bool,
    /// Leave the machine's tree behind, until the next run, to look into
    #[arg(long)]
    keep: bool,
    /// Targets of make, in this order
    #[arg(default_values = ["setup", "ova", "test"])]
    targets: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "running a container takes root: use make cold");
    // Labs in the machine are called as those of scenarios are, and share this host's kernel with them.
    let _alone = runner::alone().map_err(anyhow::Error::msg)?;
    println!("cold: this machine's pace: SHA-256 over 1 GiB of zeros, {:.1} s", yardstick()?.as_secs_f64());
    let started = Instant::now();
    let mut bare = BareMachine::new(&options.suite)?;
    bare.lend_kernel()?;
    bare.clone_in_project("root")?;
    let mut path = String::new();
    if options.lend_rust {
        bare.lend_rust()?;
        path = format!("export PATH={LENT_RUST}/bin:$PATH; ");
        println!("cold: this host's Rust is lent to the machine, read-only");
    }
    println!("cold: a bare {} with a clean clone, {} s", options.suite, started.elapsed().as_secs());
    let made = make(options, &bare, &path);
    if options.keep {
        println!("cold: the machine's tree is {}", bare.keep().display());
    }
    made
}

fn make(options: &Options, bare: &BareMachine, path: &str) -> anyhow::Result<()> {
    for target in &options.targets {
        let started = Instant::now();
        let status = bare.command("root", &format!("{path}exec make {target}")).status()?;
        println!("cold: make {target}, {} s: {status}", started.elapsed().as_secs());
        if !status.success() {
            bail!("make {target} failed on a bare {}", options.suite);
        }
    }
    let made = bare.run("root", "ls -l build; du -sh ~/.cache ~/.cargo ~/.rustup ~/go 2>/dev/null")?;
    print!("{}", made.text);
    Ok(())
}

/// How long a fixed computation takes here, by which times of two runs can be compared: nothing of this project is in
/// it.
fn yardstick() -> anyhow::Result<Duration> {
    let started = Instant::now();
    let output = Command::new("sh").args(["-c", "head -c 1073741824 /dev/zero | sha256sum"]).output();
    let output = output.context("measuring this machine's pace with sha256sum")?;
    ensure!(output.status.success(), "measuring this machine's pace: {}", String::from_utf8_lossy(&output.stderr));
    Ok(started.elapsed())
}
