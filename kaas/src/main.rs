//! `kaas`: the command of the operator and of the build host.
//!
//! Rooms, from the ground up. No room uses one above it:
//!
//! ```text
//! output confirm home keys signals builder   the terminal, and what all commands need of this machine
//! labs                                       engine, port forward and tools of labs
//! work control                               waits for machines, and for objects of a control cluster
//! cluster_file                               the file that describes a cluster, its provider and credentials
//! commands                                   the command line, one module for each command
//! ```

#[macro_use]
mod output;

mod builder;
mod cluster_file;
mod commands;
mod confirm;
mod control;
mod home;
mod keys;
mod labs;
mod signals;
mod work;

use std::process::ExitCode;

use clap::FromArgMatches;

use commands::{Arguments, program};

fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&program().get_matches()).unwrap_or_else(|error| error.exit());
    output::show_log(arguments.verbose);
    home::settle().and_then(|()| commands::run(arguments.command)).unwrap_or_else(|error| {
        output::warn(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}
