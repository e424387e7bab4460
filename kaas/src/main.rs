//! `kaas`: the operator's command.

use std::process::ExitCode;

use clap::FromArgMatches;

use kaas::commands::{Arguments, completion, program, run};

fn main() -> ExitCode {
    completion::answer(program);
    let arguments = Arguments::from_arg_matches(&program().get_matches()).unwrap_or_else(|error| error.exit());
    kaas::run(arguments.verbose, || run(arguments.command))
}
