//! `kaas-agent encryption`: how Secrets are encrypted, and a new key for them. Sends requests to etcd directly and does
//! not need the running agent. The agents take the steps to a new key.

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::json;

use super::key_set::{KeySet, RotationStep};
use super::store::Store;
use super::unwrap_keys;
use crate::cluster::REQUEST;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::PKI;
use crate::cluster::records::Records;
use crate::host::files;
use crate::intake::config::{ControlPlane, Output};

/// The subcommands.
#[derive(Subcommand)]
pub enum Encryption {
    /// Show how Secrets are encrypted, and the progress of a new key
    Status {
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Make a new key, which the control-plane nodes start to use step by step
    ///
    /// Every Secret is written again with the new key, and the former one is removed. It takes some minutes; `status`
    /// shows the progress. Running the command again meanwhile changes nothing.
    Rotate,
}

impl Encryption {
    pub fn run(self, root: &Path, out: &mut impl Write) -> anyhow::Result<()> {
        let config = Records::new(root).config()?.context("this node has no configuration yet")?;
        let config = config.control_plane()?;
        let node = config.control_node()?;
        let etcd = EtcdClient::new(node, &files::below(root, PKI), config.timeout(REQUEST))?;
        match self {
            Self::Status { output } => status(config, &Store(&etcd), output, out),
            Self::Rotate => rotate(root, &Store(&etcd), SystemTime::now(), out),
        }
    }
}

fn status(config: &ControlPlane, store: &Store<'_>, output: Output, out: &mut impl Write) -> anyhow::Result<()> {
    let seen = store.read()?;
    let nodes = config.cluster.control_nodes.iter().map(|node| node.name.as_str());
    let nodes: Vec<&str> = nodes.collect();
    let next = seen.set.next(&nodes, &store.loaded()?, SystemTime::now());
    let waiting = match &next {
        RotationStep::Wait(behind) => behind.as_slice(),
        _ => &[],
    };
    match output {
        Output::Json => {
            let KeySet { keys, write, generation, since, .. } = &seen.set;
            let keys: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
            let under_way = next != RotationStep::Idle;
            writeln!(
                out,
                "{:#}",
                json!({"keys": keys, "write": write, "generation": generation, "since": since, "under-way": under_way,
                    "waiting": waiting})
            )?;
        }
        Output::Text => write!(out, "{}", described(&seen.set, &next))?,
    }
    Ok(())
}

fn described(set: &KeySet, next: &RotationStep) -> String {
    let mut text = format!("Secrets are written with the encryption key {}.\n", set.write);
    if let Some(incoming) = set.incoming() {
        text += &format!("The key {incoming} is to take over.\n");
    } else if set.has_former() {
        let ids = set.keys.iter().map(|key| key.id.as_str());
        let former: Vec<&str> = ids.filter(|id| *id != set.write).collect();
        text += &format!("Those that were written with {} are being written again.\n", former.join(" and "));
    }
    if let RotationStep::Wait(behind) = next {
        text += &format!("The next step waits for the API server on {}.\n", behind.join(", "));
    }
    text
}

fn rotate(root: &Path, store: &Store<'_>, now: SystemTime, out: &mut impl Write) -> anyhow::Result<()> {
    let seen = store.read()?;
    let (key, authority) = unwrap_keys::new_key(root)?;
    if seen.set.ca != authority {
        bail!("the keys in the store are another cluster's, and were not recovered yet");
    }
    let id = key.id.clone();
    let Some(offered) = seen.set.offered(key, now) else {
        writeln!(out, "the nodes already change to a new key; `kaas-agent encryption status` says how far it is")?;
        return Ok(());
    };
    if !store.change(&seen, &offered)? {
        bail!("the keys were changed meanwhile: look at `kaas-agent encryption status`");
    }
    writeln!(out, "the nodes change to the new key {id}; `kaas-agent encryption status` says how far it is")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::encryption::key_set::WrappedKey;

    #[test]
    fn each_step_is_described() {
        let now = SystemTime::UNIX_EPOCH;
        let key = |id: &str| WrappedKey { id: id.to_owned(), wrapped: String::new() };
        let alone = KeySet::first("a", key("k1"), now);
        assert_eq!(described(&alone, &RotationStep::Idle), "Secrets are written with the encryption key k1.\n");
        let offered = alone.offered(key("k2"), now).unwrap();
        assert_eq!(
            described(&offered, &RotationStep::Wait(vec!["cp2".into(), "cp3".into()])),
            "Secrets are written with the encryption key k1.\nThe key k2 is to take over.\n\
             The next step waits for the API server on cp2, cp3.\n"
        );
        let used = KeySet { write: "k2".into(), ..offered };
        assert!(
            described(&used, &RotationStep::Idle)
                .ends_with("Those that were written with k1 are being written again.\n")
        );
    }
}
