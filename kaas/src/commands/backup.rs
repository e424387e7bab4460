//! `kaas control backup`: pulls a fresh snapshot of a cluster's store from one of its control-plane nodes, over TLS, with the
//! administrator's kubeconfig.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use contract::ports;
use fleet::lease::SpaceQuota;
use fleet::nodes::Client;
use schemars::JsonSchema;
use serde::Serialize;

use super::recovery_key;
use crate::control::ControlClusterArgs;
use crate::output::{Output, warn};
use crate::work::duration;

#[derive(Args)]
pub struct Backup {
    /// Address of a control-plane node. Not the virtual IP: the node behind it may change
    #[arg(long, value_name = "ADDRESS")]
    node: Ipv4Addr,
    /// Port of the endpoint
    #[arg(long, default_value_t = ports::NODE, hide = true)]
    port: u16,
    /// File for the snapshot. The snapshot holds all objects of Kubernetes, with Secrets encrypted
    #[arg(long, value_name = "FILE")]
    to_file: PathBuf,
    /// How long the node may take for the snapshot
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    at: ControlClusterArgs,
}

/// The output of the command.
#[derive(Serialize, JsonSchema)]
pub struct PulledSnapshot {
    /// Path of the file.
    path: PathBuf,
    /// Size in bytes.
    size: u64,
    /// Fingerprints of the recovery keys that the encryption keys are sealed to.
    sealed_to: BTreeSet<String>,
}

/// Pulls the snapshot. The output file is written only if it is complete and verified.
pub fn run(arguments: &Backup) -> anyhow::Result<()> {
    let Backup { node, port, to_file, timeout, output, at } = arguments;
    let client = Client::of_credentials(&at.selected()?.credentials)?;
    let room = SpaceQuota::unbounded();
    let size = client.wait(client.pull_snapshot(*node, *port, to_file, &room, *timeout))?;
    let pulled = PulledSnapshot::of(to_file, size)?;
    output.result(&pulled, || pulled.text())?;
    if pulled.sealed_to.is_empty() {
        warn("warning: it carries no encryption keys sealed to you: without the cluster's nodes, its Secrets are lost");
    }
    Ok(())
}

impl PulledSnapshot {
    /// Reads from a complete file which recovery keys it is sealed to.
    fn of(path: &Path, size: u64) -> anyhow::Result<Self> {
        let kept = recovery_key::kept_in(path)?;
        let to = kept.copies.iter().filter_map(|copy| Some(copy.sealed.as_ref()?.to.as_str().to_owned()));
        Ok(Self { path: path.to_owned(), size, sealed_to: to.collect() })
    }

    fn text(&self) -> String {
        let text = format!("{}: {} bytes, SHA-256 verified", self.path.display(), self.size);
        if self.sealed_to.is_empty() {
            return text;
        }
        let to: Vec<&str> = self.sealed_to.iter().map(String::as_str).collect();
        format!("{text}\nit carries the encryption keys of its Secrets, sealed to {}", to.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use contract::recovery::PrivateKey;

    use super::*;
    use crate::commands::schemas::tests::fits;

    const SNAPSHOT: &[u8] = include_bytes!("recovery_key/fixtures/snapshot.db");
    const PRIVATE: &str = include_str!("../../../contract/src/recovery/fixtures/key.pem");

    #[test]
    fn pulled_snapshot_names_its_recovery_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.db");
        std::fs::write(&path, SNAPSHOT).unwrap();
        let pulled = PulledSnapshot::of(&path, 57_376).unwrap();
        let key = PrivateKey::of_pem(PRIVATE).unwrap().public().unwrap().fingerprint();
        assert!(pulled.sealed_to.contains(key.as_str()) && pulled.text().contains(key.as_str()), "{}", pulled.text());
        fits("control-backup", &pulled);
    }
}
