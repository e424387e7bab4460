//! `kaas backup`: pulls a fresh snapshot of a cluster's store from one of its
//! control nodes, over TLS, with the administrator's kubeconfig.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use contract::ports;
use fleet::lease::SpaceQuota;
use fleet::nodes::Client;

use crate::recovery;

/// What to pull from where.
#[derive(Args)]
pub struct Backup {
    /// Address of a control node; not the virtual IP, behind which the node may change.
    #[arg(long, value_name = "ADDRESS")]
    node: Ipv4Addr,
    /// The endpoint's port.
    #[arg(long, default_value_t = ports::NODE, hide = true)]
    port: u16,
    /// The cluster administrator's kubeconfig: its certificate is shown, its authority trusted.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Where to put the snapshot. It holds all that Kubernetes knows, Secrets encrypted.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// How long the node may take for the snapshot, in minutes.
    #[arg(long, default_value_t = 10)]
    limit: u64,
}

/// Pulls the snapshot. The output is there whole and verified, or not at all.
///
/// # Errors
/// The node cannot be reached or trusted, refuses, or what came is not what it sent.
pub fn run(arguments: &Backup) -> anyhow::Result<()> {
    let client = Client::of_kubeconfig(&arguments.kubeconfig)?;
    let limit = Duration::from_secs(arguments.limit * 60);
    let room = SpaceQuota::unbounded();
    let size = client.wait(client.pull_snapshot(arguments.node, arguments.port, &arguments.output, &room, limit))?;
    crate::output::say(&format!("{}: {size} bytes, SHA-256 verified", arguments.output.display()));
    let kept = recovery::kept_in(&arguments.output)?;
    let to: BTreeSet<&str> = kept.copies.iter().filter_map(|copy| Some(copy.sealed.as_ref()?.to.as_str())).collect();
    if to.is_empty() {
        crate::output::warn(
            "it carries no encryption keys sealed to you: without the cluster's nodes, its Secrets are lost",
        );
    } else {
        let to: Vec<&str> = to.into_iter().collect();
        crate::output::say(&format!("it carries the encryption keys of its Secrets, sealed to {}", to.join(" and ")));
    }
    Ok(())
}
