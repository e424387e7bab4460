//! The commands on a control cluster. `kaas-dev` has them too, for clusters in labs.

use std::process::ExitCode;

use clap::Subcommand;

use super::{deploy, upgrade};

/// Commands on a control cluster.
#[derive(Subcommand)]
pub enum Control {
    /// Adopt VMs that were imported by hand, so that upgrades may change them
    Adopt(upgrade::Adopt),
    /// Renew the certificates of a control cluster's nodes
    #[command(subcommand)]
    Certificate(upgrade::Certificate),
    /// Create a control cluster from the file that describes it, or continue its creation
    Deploy(deploy::Deploy),
    /// Remove a control cluster. Its data disks are kept without `--data-disks`
    Destroy(deploy::Destroy),
    /// Show the state of a control cluster that `kaas deploy` has created
    Status(deploy::ClusterFileArgs),
    /// Upgrade a control cluster
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
}

/// Runs a command.
///
/// # Errors
/// As the command.
pub fn run(command: Control) -> anyhow::Result<ExitCode> {
    match command {
        Control::Adopt(arguments) => upgrade::adopt(&arguments),
        Control::Certificate(command) => upgrade::certificate::run(command),
        Control::Deploy(arguments) => deploy::deploy(&arguments),
        Control::Destroy(arguments) => deploy::destroy(&arguments),
        Control::Status(arguments) => deploy::status(&arguments),
        Control::Upgrade(command) => upgrade::run(command),
    }
}
