//! The controller's program. What it has by now is for development: it writes what is made from the kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use controller::documents::{definitions, renew};

/// Tenant clusters as objects of the control cluster.
#[derive(Parser)]
#[command(name = "controller", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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
