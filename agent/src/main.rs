//! `kaas-agent`: the command of the appliance VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::faces::cli::main()
}
