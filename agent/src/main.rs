//! `kaas-agent`: the command of the appliance VM.

use std::process::ExitCode;

use clap::Parser;

/// First boot, cluster forming and everyday care of an appliance VM.
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Lay /etc with the node's identity before the system starts
    Early(agent::early::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Early(options) => agent::early::command(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kaas-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
