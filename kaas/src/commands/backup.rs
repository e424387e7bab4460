//! `kaas control backup`: pulls a fresh snapshot of a cluster's store from one of its control-plane nodes, over TLS, with the
//! administrator's kubeconfig.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use contract::ports;
use fleet::lease::SpaceQuota;
use fleet::nodes::Client;

use super::recovery_key;

/// The options of `kaas control backup`.
#[derive(Args)]
pub struct Backup {
    /// Address of a control-plane node. Not the virtual IP: the node behind it may change
    #[arg(long, value_name = "ADDRESS")]
    node: Ipv4Addr,
    /// Port of the endpoint
    #[arg(long, default_value_t = ports::NODE, hide = true)]
    port: u16,
    /// Kubeconfig of a cluster administrator. Its certificate identifies the client, its CA verifies the node
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// File for the snapshot. The snapshot holds all objects of Kubernetes, with Secrets encrypted
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Minutes that the node may take for the snapshot
    #[arg(long, default_value_t = 10)]
    limit: u64,
}

/// Pulls the snapshot. The output file is written only if it is complete and verified.
pub fn run(arguments: &Backup) -> anyhow::Result<()> {
    let client = Client::of_kubeconfig(&arguments.kubeconfig)?;
    let limit = Duration::from_secs(arguments.limit * 60);
    let room = SpaceQuota::unbounded();
    let size = client.wait(client.pull_snapshot(arguments.node, arguments.port, &arguments.output, &room, limit))?;
    crate::output::say(&format!("{}: {size} bytes, SHA-256 verified", arguments.output.display()));
    let kept = recovery_key::kept_in(&arguments.output)?;
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
