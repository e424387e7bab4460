//! `kaas`: the command of the operator and of the build host.

mod lab;

use std::process::ExitCode;

use clap::Parser;

/// Kubernetes clusters from virtual appliances.
#[derive(Parser)]
#[command(version)]
enum Arguments {
    /// Runs appliances on this machine, without a vCenter.
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    let result = match Arguments::parse() {
        Arguments::Lab(command) => lab::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
