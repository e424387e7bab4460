//! `kaas recovery-key`: the operator's key pair for recovery. Clusters seal the encryption keys of their Secrets to the public key.
//! The private key opens the sealed copies in a snapshot.

mod snapshot;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use contract::properties::RECOVERY_PUBLIC_KEY;
use contract::recovery::{Error, Key, Keys, PrivateKey};
use fleet::files;
use schemars::JsonSchema;
use serde::Serialize;
use snapshot::{SealedCopies, SealedCopy};
use zeroize::Zeroizing;

use crate::output::Output;

/// Commands for the recovery of clusters.
#[derive(Subcommand)]
pub enum RecoveryKey {
    /// Create a key pair: write the private key to a file and print the public one
    #[command(after_help = "Example: `kaas recovery-key new --to-file recovery.pem`")]
    New {
        /// File for the private key. An existing file is never replaced
        #[arg(long, value_name = "FILE")]
        to_file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Open the encryption keys that a snapshot carries, for `kaas-agent restore --recovered-keys`
    #[command(after_help = "Example: `kaas recovery-key open --key recovery.pem --to-file keys.json control.db`")]
    Open {
        /// Private key, in PEM
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// File for the opened keys. They decrypt the Secrets of the snapshot: delete the file after the restore
        #[arg(long, value_name = "FILE")]
        to_file: PathBuf,
        /// Snapshot
        snapshot: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

/// The output of `new`.
#[derive(Serialize, JsonSchema)]
pub struct NewKey {
    /// Path of the private key.
    path: PathBuf,
    public_key: String,
}

/// The output of `open`.
#[derive(Serialize, JsonSchema)]
pub struct OpenedKeys {
    /// Path of the opened keys.
    path: PathBuf,
    /// Identifiers of the keys.
    keys: Vec<String>,
}

/// Creates a key pair, or opens the sealed keys of a snapshot. Fails if the key opens none of them.
pub fn run(command: &RecoveryKey) -> anyhow::Result<ExitCode> {
    match command {
        RecoveryKey::New { to_file, output } => {
            let key = PrivateKey::draw()?;
            files::write_new(to_file, key.pem().expose().as_bytes())?;
            let new = NewKey { path: to_file.clone(), public_key: key.public()?.to_string() };
            output.result(&new, || format!("{RECOVERY_PUBLIC_KEY}={}", new.public_key))
        }
        RecoveryKey::Open { key, to_file, snapshot, output } => {
            let text = fs::read_to_string(key).map(Zeroizing::new);
            let text = text.with_context(|| format!("reading {}", key.display()))?;
            let key = PrivateKey::of_pem(&text).with_context(|| key.display().to_string())?;
            let SealedCopies { copies, damaged } = kept_in(snapshot)?;
            if damaged > 0 {
                crate::output::warn(&format!("{damaged} parts of the snapshot are damaged: copies may be missing"));
            }
            let (keys, wrong) = opened(&copies, &key)?;
            wrong.iter().for_each(|wrong| crate::output::warn(wrong));
            files::write_new(to_file, &Zeroizing::new(serde_json::to_vec_pretty(&keys)?))?;
            let opened = OpenedKeys { path: to_file.clone(), keys: keys.ids().map(str::to_owned).collect() };
            output
                .result(&opened, || format!("{}: the encryption keys {}", to_file.display(), opened.keys.join(" and ")))
        }
    }
}

/// Reads the nodes' sealed copies from a snapshot.
pub fn kept_in(snapshot: &Path) -> anyhow::Result<SealedCopies> {
    let read = || snapshot::look(&File::open(snapshot)?);
    read().with_context(|| format!("reading {}", snapshot.display()))
}

/// All keys that this private key opens, and the errors of damaged copies. One readable copy is enough. If copies disagree on a
/// key, the key of most copies is used.
fn opened(copies: &[SealedCopy], key: &PrivateKey) -> anyhow::Result<(Keys, Vec<String>)> {
    if copies.is_empty() {
        bail!(
            "nothing is sealed in this snapshot: the cluster had no {RECOVERY_PUBLIC_KEY}, or did not encrypt Secrets"
        );
    }
    let (mut found, mut wrong): (Vec<(Key, BTreeSet<&str>)>, Vec<String>) = (Vec::new(), Vec::new());
    for SealedCopy { node, sealed } in copies {
        match sealed.as_ref().ok_or(Error::Damaged).and_then(|sealed| sealed.open(key)) {
            Ok(keys) => {
                for key in keys.keys {
                    match found.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, nodes)) => drop(nodes.insert(node)),
                        None => found.push((key, BTreeSet::from([node.as_str()]))),
                    }
                }
            }
            Err(Error::OtherKey) => {}
            Err(error) => wrong.push(format!("a copy of node {node} cannot be opened: {error}")),
        }
    }
    if found.is_empty() {
        let others: BTreeSet<&str> = copies.iter().filter_map(|copy| Some(copy.sealed.as_ref()?.to.as_str())).collect();
        let own = key.public()?.fingerprint();
        if others.contains(own.as_str()) || others.is_empty() {
            bail!("no copy in this snapshot can be opened: {}", wrong.join("; "));
        }
        let others: Vec<&str> = others.into_iter().collect();
        bail!("the snapshot's keys are sealed to {}, and this key is {own}", others.join(" and "));
    }
    found.sort_by_key(|(_, nodes)| Reverse(nodes.len()));
    let names = |nodes: &BTreeSet<&str>| nodes.iter().copied().collect::<Vec<_>>().join(" and ");
    let mut keys: Vec<(Key, BTreeSet<&str>)> = Vec::new();
    for (key, nodes) in found {
        match keys.iter().find(|(known, _)| known.id == key.id) {
            Some((_, most)) => wrong.push(format!(
                "the copies disagree on the key {}: that of {} is taken, another one of {} is not",
                key.id,
                names(most),
                names(&nodes)
            )),
            None => keys.push((key, nodes)),
        }
    }
    Ok((Keys { keys: keys.into_iter().map(|(key, _)| key).collect() }, wrong))
}

#[cfg(test)]
mod tests;
