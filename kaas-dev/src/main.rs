//! `kaas-dev`: the command of the build host and of labs. It also has the commands of `kaas` on control clusters, for labs.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! commands      the command line, one module for each command
//! lab_provider  labs as a provider of clusters
//! labs          the parts of labs that commands and the provider use
//! builder       the parts of the image builder that several commands use
//! ```

mod builder;
mod commands;
mod lab_provider;
mod labs;

use std::process::ExitCode;

use clap::FromArgMatches;
use fleet::NoOva;

use commands::{Arguments, program};
use kaas::commands::completion;

fn main() -> ExitCode {
    completion::answer(program);
    let arguments = Arguments::from_arg_matches(&program().get_matches()).unwrap_or_else(|error| error.exit());
    kaas::run(arguments.verbose, || commands::run(arguments.command).map_err(hinted))
}

/// Adds a remedy that only the build host has.
fn hinted(error: anyhow::Error) -> anyhow::Error {
    if error.is::<NoOva>() { anyhow::anyhow!("{error:#}\nhelp: `make ova` builds one") } else { error }
}
