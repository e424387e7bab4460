//! `kaas completion`: the script that registers completion with a shell, and the answers to that script. `kaas-dev` has the same
//! command.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

/// The variable in which the script names its shell.
const VARIABLE: &str = "KAAS_COMPLETE";

#[derive(Args)]
pub struct Completion {
    /// Shell. For bash, write the output to /etc/bash_completion.d/kaas
    #[arg(value_enum)]
    shell: Shell,
}

/// Answers the script of a shell, and ends the process. Does nothing if no script has started the process.
pub fn answer(program: fn() -> Command) {
    CompleteEnv::with_factory(program).var(VARIABLE).complete();
}

pub fn run(arguments: &Completion, program: &Command) -> anyhow::Result<()> {
    crate::output::result(&script(arguments.shell, program.get_name())?)
}

/// The script for the program of this name, which is in the directories of PATH.
fn script(shell: Shell, name: &str) -> anyhow::Result<String> {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    let completer = shells.completer(&shell.to_string()).with_context(|| format!("{shell} is unknown"))?;
    completer.write_registration(VARIABLE, name, name, name, &mut script).context("writing the script")?;
    String::from_utf8(script).context("the script is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_script_asks_the_program() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = script(shell, "kaas-dev").unwrap();
            assert!(script.contains(VARIABLE) && script.contains("kaas-dev"), "{shell}: {script}");
        }
    }
}
