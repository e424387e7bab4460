//! `kaas control …`: the commands on a control cluster. `kaas-dev` has them too, for clusters in labs.

pub(super) mod deployment;

use std::process::ExitCode;

use clap::Subcommand;

use super::{backup, upgrade};

/// Commands on a control cluster.
#[derive(Subcommand)]
pub enum Control {
    /// Create a control cluster from the file that describes it, or continue its creation
    #[command(after_help = "Example: `kaas control create --file cluster.toml`")]
    Create(deployment::Create),
    /// Show the state of a control cluster that `kaas control create` has created
    #[command(after_help = "Example: `kaas control status --file cluster.toml`")]
    Status(deployment::ClusterFileArgs),
    /// Upgrade a control cluster
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
    /// Write a new kubeconfig, which a node issues for the deployer's key. It is valid for a day
    #[command(after_help = "Example: `kaas control kubeconfig --file cluster.toml`")]
    Kubeconfig(deployment::Kubeconfig),
    /// Pull a fresh snapshot of a cluster's store from a control-plane node
    #[command(after_help = "Example: `kaas control backup --node 10.20.30.11 --to-file control.db`")]
    Backup(backup::Backup),
    /// Renew the certificates of a control cluster's nodes
    #[command(subcommand)]
    Certificate(upgrade::Certificate),
    /// Replace a lost control-plane node by a new VM
    #[command(after_help = "Example: `kaas control replace-node cp2 --file cluster.toml`")]
    ReplaceNode(deployment::ReplaceNode),
    /// Adopt VMs that were imported by hand, so that upgrades may change them
    #[command(after_help = "Example: `kaas control adopt --file cluster.toml`")]
    Adopt(upgrade::Adopt),
    /// Delete a control cluster. Its data disks are kept without `--data-disks`
    #[command(after_help = "Example: `kaas control delete --file cluster.toml`")]
    Delete(deployment::Delete),
}

pub fn run(command: Control) -> anyhow::Result<ExitCode> {
    match command {
        Control::Create(arguments) => deployment::create(&arguments),
        Control::Status(arguments) => deployment::status(&arguments),
        Control::Upgrade(command) => upgrade::run(command),
        Control::Kubeconfig(arguments) => deployment::kubeconfig(&arguments),
        Control::Backup(arguments) => backup::run(&arguments).map(|()| ExitCode::SUCCESS),
        Control::Certificate(command) => upgrade::certificate::run(command),
        Control::ReplaceNode(arguments) => deployment::replace_node(&arguments),
        Control::Adopt(arguments) => upgrade::adopt(&arguments),
        Control::Delete(arguments) => deployment::delete(&arguments),
    }
}
