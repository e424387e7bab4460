//! `kaas completion`: the completion scripts of shells. `kaas-dev` has the same command.

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

/// The options of `kaas completion`.
#[derive(Args)]
pub struct Completion {
    /// Shell. For bash, write the output to /etc/bash_completion.d/kaas
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(arguments: &Completion, program: &mut Command) -> anyhow::Result<()> {
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(arguments.shell, program, name, &mut script);
    crate::output::result(&String::from_utf8(script).context("the script is no text")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_script_names_the_commands() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::commands::program(), "kaas", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("kubeconfig") && script.contains("cluster"), "{shell}");
        }
    }
}
