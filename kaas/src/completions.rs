//! `kaas completions`: what a shell completes after `kaas`.

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

/// For which shell.
#[derive(Args)]
pub struct Completions {
    /// The shell. For bash: `kaas completions bash >/etc/bash_completion.d/kaas`.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints a script that the shell reads.
pub fn run(arguments: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::program(), "kaas", &mut script);
    crate::output::result(&String::from_utf8(script).context("the script is no text")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_a_script_that_names_what_there_is() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::program(), "kaas", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("kubeconfig") && script.contains("cluster"), "{shell}");
        }
    }
}
