//! The operator's command, `kaas`. Its rooms are a library, because `kaas-dev` uses them as well.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! commands                                                  the command line, one module for each command
//! cluster_file                                              the file that describes a cluster, its provider and credentials
//! control work                                              objects of a control cluster; waits for machines
//! confirm home keys kubeconfig_file output signals uploads  the terminal, and parts of this machine
//! styled                                                    text with styles for states
//! ```

#[macro_use]
pub mod output;

pub mod cluster_file;
pub mod commands;
pub mod confirm;
pub mod control;
pub mod home;
pub mod keys;
mod kubeconfig_file;
pub mod signals;
mod styled;
mod uploads;
pub mod work;

use std::process::ExitCode;

/// Runs a program's command: prints its error, and returns its exit status. With `verbose`, debug messages are shown too.
pub fn run(verbose: bool, command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    output::show_log(verbose);
    home::settle().and_then(|()| command()).unwrap_or_else(|error| {
        output::warn(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}
