//! The commands, one module each. A command may use another one, but no circle.

mod backup;
mod cluster;
pub mod completion;
pub mod control;
mod explain;
mod image;
mod ova;
mod pool;
mod provider;
mod recovery_key;
pub mod schemas;
mod support;
mod tenant;
mod upgrade;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Kubernetes clusters from virtual appliances
#[derive(Parser)]
#[command(name = "kaas", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Also show debug messages, on standard error
    #[arg(long, global = true, help_heading = "Output")]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Manage control clusters
    #[command(subcommand)]
    Control(control::Control),
    /// Manage tenant clusters, which are objects of a control cluster
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Manage the pools of workers of tenant clusters
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Manage the vCenters that tenant clusters run on
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Manage the teams that use tenant clusters: what they may use, and their quotas
    #[command(subcommand)]
    Tenant(tenant::Tenant),
    /// Manage the images of tenant nodes
    #[command(subcommand)]
    Image(image::Image),
    /// Show and check OVAs, and convert disks to VMDKs and back
    #[command(subcommand)]
    Ova(ova::Ova),
    /// Manage the keys that restore a cluster after all its control-plane nodes were lost
    #[command(subcommand)]
    RecoveryKey(recovery_key::RecoveryKey),
    /// Write a support bundle of a control cluster, without secrets
    ///
    /// The bundle has the product's objects and their conditions, events, leases, nodes, and the status of each node's agent. It
    /// also has the pods of system namespaces with their last logs. It has no Secrets, tokens, passwords or kubeconfigs.
    ///
    /// Exit status 0: the bundle is complete. 4: parts could not be read, and `errors.txt` in the bundle names them. 1: no bundle
    /// was written. After `--timeout` or Ctrl-C, the bundle has the parts that were read until then.
    #[command(after_help = "Example: `kaas support --to-file bundle.tar.gz`")]
    Support(support::Support),
    /// Explain a code of a finding, a refusal or a reason, and what to do
    #[command(after_help = "Example: `kaas explain disk.foreign`")]
    Explain(explain::Explain),
    /// Print the versions of this program and of the objects that it writes
    #[command(after_help = "Example: `kaas version --output yaml`")]
    Version(version::Version),
    /// Print the completion script of a shell
    #[command(after_help = "Example: `kaas completion bash`")]
    Completion(completion::Completion),
}

/// The command line.
pub fn program() -> clap::Command {
    with_names(Arguments::command())
}

/// The help line of each group ends with the names of its commands.
pub fn with_names(program: clap::Command) -> clap::Command {
    program.mut_subcommands(|group| {
        let group = with_names(group);
        let shown = group.get_subcommands().filter(|command| !command.is_hide_set());
        let names = shown.map(clap::Command::get_name).collect::<Vec<_>>().join(", ");
        match group.get_about() {
            Some(about) if !names.is_empty() => {
                let about = format!("{about}: {names}");
                group.about(about)
            }
            _ => group,
        }
    })
}

/// The visible commands that are no groups, each with all its words.
pub fn leaves(program: &clap::Command) -> Vec<(String, &clap::Command)> {
    fn gather<'c>(group: &'c clap::Command, words: &str, found: &mut Vec<(String, &'c clap::Command)>) {
        for command in group.get_subcommands().filter(|command| !command.is_hide_set()) {
            let words = format!("{words} {}", command.get_name());
            match command.has_subcommands() {
                true => gather(command, &words, found),
                false => found.push((words, command)),
            }
        }
    }
    let mut found = Vec::new();
    gather(program, program.get_name(), &mut found);
    found
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Control(command) => control::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Pool(command) => pool::run(&command),
        Command::Provider(command) => provider::run(&command),
        Command::Tenant(command) => tenant::run(&command),
        Command::Image(command) => image::run(&command),
        Command::Ova(command) => ova::run(command).map(done),
        Command::RecoveryKey(command) => recovery_key::run(&command),
        Command::Support(arguments) => support::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments, &program()).map(done),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_lists_the_commands_of_each_group() {
        let help = super::program().term_width(1000).render_help().to_string();
        for group in super::program().get_subcommands().filter(|group| group.has_subcommands()) {
            let line =
                help.lines().find(|line| line.trim_start().starts_with(&format!("{} ", group.get_name()))).unwrap();
            let listed: Vec<&str> = line.rsplit_once(": ").unwrap().1.split(", ").collect();
            let shown = group.get_subcommands().filter(|command| !command.is_hide_set());
            assert_eq!(listed, shown.map(|command| command.get_name()).collect::<Vec<_>>(), "{line}");
        }
        assert!(
            help.contains("get, describe, upgrade, kubeconfig, adopt, replace-node, delete")
                && help.contains("create, status, upgrade, kubeconfig, backup"),
            "{help}"
        );
        let program = super::program();
        let control = program.find_subcommand("control").unwrap().clone().term_width(1000).render_help().to_string();
        assert!(control.contains("abandon, kubernetes, status"), "{control}");
    }
}
