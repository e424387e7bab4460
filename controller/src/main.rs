//! The controller's program. It also prints and writes the documents made from the kinds, for developers.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
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
    /// Wait for election and run the reconcilers until SIGTERM or SIGINT. If leadership is lost, the program starts again
    Run {
        /// Kubeconfig of the control cluster's API server. Default: the service account of the Pod
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Name of the node that the controller runs on
        #[arg(long, value_name = "NAME", env = "NODE_NAME")]
        node: String,
        /// Address on the loopback interface for `GET /healthz`
        #[arg(long, value_name = "ADDRESS:PORT")]
        health: Option<SocketAddr>,
        /// Image facts of the node. For a minute, a controller of another build leaves the Lease to controllers of the marked
        /// build
        #[arg(long, value_name = "FILE", requires = "marked")]
        image: Option<PathBuf>,
        /// Build of the image that installed the cluster's kinds
        #[arg(long, value_name = "BUILD", requires = "image")]
        marked: Option<String>,
        /// Directory for data of this node only: the snapshots that are taken before upgrades. It must be private
        #[arg(long, value_name = "DIRECTORY", default_value = controller::reach::providers::DIRECTORY)]
        directory: PathBuf,
        /// Virtual IP of the control cluster. No tenant cluster gets it
        #[arg(long, value_name = "ADDRESS", env = "VIRTUAL_ADDRESS")]
        virtual_address: Option<Ipv4Addr>,
    },
    /// Print all objects that an API server needs before a controller can work there, as one list
    Definitions,
    /// Write the kinds, policies and rights for an API server as YAML files
    Crds {
        /// Directory for the files
        #[arg(long, value_name = "DIRECTORY")]
        write: PathBuf,
    },
    /// Renew the reference of the kinds in a document
    Reference {
        /// File of the document
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { kubeconfig, node, health, image, marked, directory, virtual_address } => {
            waits(image.as_deref(), marked.as_deref()).and_then(|patience| {
                works(&Settings { kubeconfig, node, health, patience, directory, virtual_address })
            })
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

/// How long an expired Lease is left to others.
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

/// A control-plane node has at least two processors, and other work.
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
        // Running tasks end only here. The program does not wait for them.
        ExitReason::Lost => match re_exec()? {},
    }
}

/// Writes each record as a line to standard error.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Records of other libraries are for their developers.
        let of = metadata.target().split("::").next().unwrap_or_default();
        ["controller", "fleet", "vsphere"].contains(&of)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // A closed standard error does not stop the program.
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
