//! The controller's program. Beside its work it has what is for those who make it: it prints and writes what is made from the kinds.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use contract::image::ImageFacts;
use controller::documents::{definitions, list, renew};
use controller::leadership::patience;
use controller::run::{ExitReason, Settings, Signals, name_process, re_exec, run};
use log::{LevelFilter, Log, Metadata, Record};

/// Tenant clusters as objects of the control cluster.
#[derive(Parser)]
#[command(name = "kaas-controller", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Waits until it is elected, and looks after tenant clusters until it is asked to end. Where it leads no longer it begins anew.
    Run {
        /// How the API server of the control cluster is reached; without it by the service account of the Pod that it runs in.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// The node that it runs on.
        #[arg(long, value_name = "NAME", env = "NODE_NAME")]
        node: String,
        /// Where it says on the loopback interface whether it is well: `GET /healthz`.
        #[arg(long, value_name = "ADDRESS:PORT")]
        health: Option<SocketAddr>,
        /// What the image of its node says of itself: it leaves the Lease to controllers of the build that is marked for a minute.
        #[arg(long, value_name = "FILE", requires = "marked")]
        image: Option<PathBuf>,
        /// The build of the image that the cluster's kinds were made by.
        #[arg(long, value_name = "BUILD", requires = "image")]
        marked: Option<String>,
        /// Where it keeps what is of its node alone: the snapshot of a cluster's store that comes before its upgrade. Nobody else may
        /// read it.
        #[arg(long, value_name = "DIRECTORY", default_value = controller::reach::providers::DIRECTORY)]
        directory: PathBuf,
    },
    /// Prints all that an API server has to know before a controller works there, as one list.
    Definitions,
    /// Writes the kinds as an API server takes them, and the policy that goes with them: a YAML file each.
    Crds {
        /// The directory that they are written into.
        #[arg(long, value_name = "DIRECTORY")]
        write: PathBuf,
    },
    /// Renews the reference of the kinds in a document.
    Reference {
        /// The document.
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { kubeconfig, node, health, image, marked, directory } => {
            waits(image.as_deref(), marked.as_deref())
                .and_then(|patience| works(&Settings { kubeconfig, node, health, patience, directory }))
        }
        Command::Definitions => prints(&list().to_string()),
        Command::Crds { write } => crds(&write),
        Command::Reference { write } => reference(&write),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For how long it leaves a Lease that nobody renews to others.
fn waits(image: Option<&Path>, marked: Option<&str>) -> anyhow::Result<Duration> {
    let (Some(image), Some(marked)) = (image, marked) else { return Ok(Duration::ZERO) };
    let attempt = || format!("reading {}", image.display());
    let text = fs::read(image).with_context(attempt)?;
    let facts: ImageFacts = serde_json::from_slice(&text).with_context(attempt)?;
    Ok(patience(&facts.build, marked))
}

fn prints(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).context("printing")
}

/// A control node has two processors at least, and more to do.
const THREADS: usize = 2;

fn works(settings: &Settings) -> anyhow::Result<()> {
    if log::set_logger(&StandardError).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
    name_process()?;
    let signals = Signals::hold()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.context("starting")?;
    match runtime.block_on(run(settings, &signals))? {
        ExitReason::Asked => Ok(()),
        // What its tasks do ends only here, and none is waited for.
        ExitReason::Lost => match re_exec()? {},
    }
}

/// Each record is a line on standard error, which whoever has started this program gathers.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What libraries say of their insides is for whoever works on them.
        let of = metadata.target().split("::").next().unwrap_or_default();
        ["controller", "fleet", "vsphere"].contains(&of)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Nobody who reads it is no reason to end.
            let level = record.level().as_str().to_lowercase();
            let _ = writeln!(std::io::stderr().lock(), "{level}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

fn crds(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    for definition in definitions() {
        let file = directory.join(&definition.file);
        fs::write(&file, definition.text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn reference(document: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
    let renewed = renew(&text).with_context(|| format!("{} has no block for the reference", document.display()))?;
    fs::write(document, renewed).with_context(|| format!("writing {}", document.display()))
}
