//! `kaas`: the command of the operator and of the build host.

#[macro_use]
mod output;

mod audit;
mod backup;
mod cluster;
mod cluster_file;
mod completions;
mod confirm;
mod control;
mod deploy;
mod home;
mod image;
mod lab;
mod ova;
mod provider;
mod publisher;
mod push;
mod recovery;
mod reference;
mod signals;
mod upgrade;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kubernetes clusters from virtual appliances.
#[derive(Parser)]
#[command(name = "kaas", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Also shows what helps to find a fault, on standard error.
    #[arg(long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Takes VMs that were imported by hand into a deployment, so that upgrades may change them.
    Adopt(upgrade::Adopt),
    /// Pulls a fresh snapshot of a cluster's store from a control node.
    Backup(backup::Backup),
    /// Tenant clusters as objects of a control cluster: create, get, scale, upgrade, kubeconfig, delete.
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Prints what a shell completes after `kaas`.
    Completions(completions::Completions),
    /// Makes a control cluster from the file that describes it, or goes on with one.
    Deploy(deploy::Deploy),
    /// Removes a control cluster; its data disks stay unless it is said otherwise.
    Destroy(deploy::Destroy),
    /// Builds appliance images from their specs.
    #[command(subcommand)]
    Image(image::Image),
    /// Runs appliances on this machine, without a vCenter.
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Looks into OVAs, checks them, and turns disks into VMDKs and back.
    #[command(subcommand)]
    Ova(ova::Ova),
    /// What those need who run the machines that clusters stand on: create, get, role.
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Keys for the day on which all control nodes of a cluster are lost: new, open.
    #[command(subcommand)]
    Recovery(recovery::Recovery),
    /// Says where a control cluster stands that `kaas deploy` has made.
    Status(deploy::Described),
    /// Swaps the image of a control cluster: plan, apply, resume, rollback, commit, abandon, status.
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let arguments = Arguments::parse();
    output::show_log(arguments.verbose);
    if let Err(error) = home::settle() {
        output::warn(&format!("error: {error:#}"));
        return ExitCode::FAILURE;
    }
    let result = match arguments.command {
        Command::Adopt(arguments) => upgrade::adopt(&arguments),
        Command::Backup(arguments) => backup::run(&arguments).map(done),
        Command::Cluster(command) => cluster::run(command),
        Command::Completions(arguments) => completions::run(&arguments).map(done),
        Command::Deploy(arguments) => deploy::deploy(&arguments),
        Command::Destroy(arguments) => deploy::destroy(&arguments),
        Command::Image(command) => image::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Ova(command) => ova::run(command).map(done),
        Command::Provider(command) => provider::run(&command),
        Command::Recovery(command) => recovery::run(&command).map(done),
        Command::Status(arguments) => deploy::status(&arguments),
        Command::Upgrade(command) => upgrade::run(command),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            output::warn(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
