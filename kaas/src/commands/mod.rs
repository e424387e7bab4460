//! The commands, one module each. A command may use another one, but no circle.

mod audit;
mod backup;
mod cluster;
mod completions;
mod deploy;
mod image;
mod lab;
mod ova;
mod provider;
mod push;
mod recovery;
mod reference;
mod upgrade;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Kubernetes clusters from virtual appliances
#[derive(Parser)]
#[command(name = "kaas", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Also show debug messages, on standard error
    #[arg(long, global = true)]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Adopt VMs that were imported by hand, so that upgrades may change them
    Adopt(upgrade::Adopt),
    /// Pull a fresh snapshot of a cluster's store from a control-plane node
    Backup(backup::Backup),
    /// Renew the certificates of a control cluster's nodes
    #[command(subcommand)]
    Certificate(upgrade::Certificate),
    /// Manage tenant clusters, which are objects of a control cluster
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Print the completion script of a shell
    Completions(completions::Completions),
    /// Create a control cluster from the file that describes it, or continue its creation
    Deploy(deploy::Deploy),
    /// Remove a control cluster. Its data disks are kept without `--data-disks`
    Destroy(deploy::Destroy),
    /// Build appliance images from their specs
    #[command(subcommand)]
    Image(image::Image),
    /// Run appliances on this machine, without a vCenter
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Show and check OVAs, and convert disks to VMDKs and back
    #[command(subcommand)]
    Ova(ova::Ova),
    /// Manage the vCenters that tenant clusters run on
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Manage the keys that restore a cluster after all its control-plane nodes were lost
    #[command(subcommand)]
    Recovery(recovery::Recovery),
    /// Show the state of a control cluster that `kaas deploy` has created
    Status(deploy::ClusterFileArgs),
    /// Upgrade a control cluster
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
}

/// The command line. The help line of each group ends with the names of its commands.
pub fn program() -> clap::Command {
    Arguments::command().mut_subcommands(|group| {
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

/// Runs a command.
///
/// # Errors
/// As the command.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Adopt(arguments) => upgrade::adopt(&arguments),
        Command::Backup(arguments) => backup::run(&arguments).map(done),
        Command::Certificate(command) => upgrade::certificate::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Completions(arguments) => completions::run(&arguments, &mut program()).map(done),
        Command::Deploy(arguments) => deploy::deploy(&arguments),
        Command::Destroy(arguments) => deploy::destroy(&arguments),
        Command::Image(command) => image::run(command, &Arguments::command()),
        Command::Lab(command) => lab::run(command),
        Command::Ova(command) => ova::run(command).map(done),
        Command::Provider(command) => provider::run(&command),
        Command::Recovery(command) => recovery::run(&command).map(done),
        Command::Status(arguments) => deploy::status(&arguments),
        Command::Upgrade(command) => upgrade::run(command),
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
            help.contains("scale, upgrade, kubeconfig, adopt, delete") && help.contains("abandon, kubernetes, status"),
            "{help}"
        );
    }
}
