//! The commands, one module each. A command may use another one, but no circle.

mod audit;
mod image;
mod lab;
mod reference;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use kaas::cluster_file::add_provider;
use kaas::commands::{completion, control, with_names};

use crate::lab_provider::LABS;

/// Build appliance images, and run them on this machine
#[derive(Parser)]
#[command(name = "kaas-dev", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Also show debug messages, on standard error
    #[arg(long, global = true, help_heading = "Output")]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Manage control clusters, also in labs
    #[command(subcommand)]
    Control(control::Control),
    /// Build appliance images from their specs
    #[command(subcommand)]
    Image(image::Image),
    /// Run appliances on this machine, without a vCenter
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Print the tables of the documentation that are generated from the code
    #[command(after_help = "Example: `kaas-dev reference --write docs/reference`")]
    Reference(reference::Reference),
    /// Print the completion script of a shell
    #[command(after_help = "Example: `kaas-dev completion bash`")]
    Completion(completion::Completion),
}

/// The command line, with labs as a provider.
pub fn program() -> clap::Command {
    add_provider(LABS);
    with_names(Arguments::command())
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Control(command) => control::run(command),
        Command::Image(command) => image::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Reference(arguments) => reference::run(&arguments).map(done),
        Command::Completion(arguments) => completion::run(&arguments, &program()).map(done),
    }
}

#[cfg(test)]
mod tests {
    use kaas::commands::leaves;

    use super::program;

    #[test]
    fn each_command_has_a_valid_example() {
        let operators = kaas::commands::program();
        for program in [&operators, &program()] {
            for (words, command) in leaves(program) {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let example = help.strip_prefix("Example: `").and_then(|rest| rest.strip_suffix('`'));
                let example = example.unwrap_or_else(|| panic!("{words}: {help:?}"));
                // Some commands are shared.
                let program = if example.starts_with("kaas ") { &operators } else { program };
                let same = words.replacen("kaas-dev ", "kaas ", 1);
                assert!([words, same].iter().any(|words| example.starts_with(words)), "{example}");
                let parsed = program.clone().try_get_matches_from(example.split(' '));
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            }
        }
    }

    #[test]
    fn deployment_is_named_by_lab_or_file() {
        let parsed = |at: &[&str]| {
            let line = ["kaas-dev", "control", "upgrade", "status"].iter().chain(at);
            program().try_get_matches_from(line).is_ok()
        };
        assert!(parsed(&["--lab", "l"]) && parsed(&["--file", "cluster.toml"]) && parsed(&["-f", "cluster.toml"]));
        assert!(!parsed(&[]) && !parsed(&["--lab", "l", "--file", "cluster.toml"]));
    }
}
