//! `kaas`: the command of the operator and of the build host.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! commands                                   the command line, one module for each command
//! cluster_file                               the file that describes a cluster, its provider and credentials
//! control labs work                          objects of a control cluster; labs; waits for machines
//! builder confirm home keys output signals   the terminal, and parts of this machine
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
