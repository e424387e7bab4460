//! `kaas control …`: the commands on a control cluster. `kaas-dev` has them too, for clusters in labs.

use std::process::ExitCode;

use clap::Subcommand;

use super::{backup, deploy, upgrade};

/// Commands on a control cluster.
#[derive(Subcommand)]
pub enum Control {
    /// Create a control cluster from the file that describes it, or continue its creation
    Create(deploy::Deploy),
    /// Show the state of a control cluster that `kaas control create` has created
    Status(deploy::ClusterFileArgs),
    /// Upgrade a control cluster
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
    /// Write a new kubeconfig, which a node issues for the deployer's key. It is valid for a day
    Kubeconfig(deploy::Kubeconfig),
    /// Pull a fresh snapshot of a cluster's store from a control-plane node
    Backup(backup::Backup),
    /// Renew the certificates of a control cluster's nodes
    #[command(subcommand)]
    Certificate(upgrade::Certificate),
    /// Adopt VMs that were imported by hand, so that upgrades may change them
    Adopt(upgrade::Adopt),
    /// Delete a control cluster. Its data disks are kept without `--data-disks`
    Delete(deploy::Destroy),
}

/// Runs a command.
///
/// # Errors
/// As the command.
pub fn run(command: Control) -> anyhow::Result<ExitCode> {
    match command {
        Control::Create(arguments) => deploy::deploy(&arguments),
        Control::Status(arguments) => deploy::status(&arguments),
        Control::Upgrade(command) => upgrade::run(command),
        Control::Kubeconfig(arguments) => deploy::kubeconfig(&arguments),
        Control::Backup(arguments) => backup::run(&arguments).map(|()| ExitCode::SUCCESS),
        Control::Certificate(command) => upgrade::certificate::run(command),
        Control::Adopt(arguments) => upgrade::adopt(&arguments),
        Control::Delete(arguments) => deploy::destroy(&arguments),
    }
}
