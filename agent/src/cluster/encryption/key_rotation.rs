//! The steps of a node for the encryption of Secrets. It writes the configuration of its API server, keeps the copy
//! sealed to the operator, and reports the configuration that its API server has loaded. The node of etcd's leader
//! takes the steps from one key to the next.

use std::path::Path;
use std::time::{Duration, SystemTime};

use contract::codes;
use contract::finding::Finding;
use contract::recovery::PublicKey;
use zeroize::Zeroizing;

use super::key_set::{KeySet, RotationStep};
use super::store::Store;
use super::unwrap_keys::{self, KeyLookup, UnwrappedKeySet};
use super::{loaded, rewrite, sealed_copy};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::api_server::encryption_configuration;
use crate::host::command::Runner;
use crate::intake::config::ControlPlane;

/// A longer step waits for something, times the timeout factor. API servers check their file each minute.
const STEP_LIMIT: Duration = Duration::from_secs(600);

/// How long the API server may take to write a Secret, times the timeout factor.
const WRITING: Duration = Duration::from_secs(30);

/// The prefix of all keys of API servers in etcd (`--etcd-prefix`).
const REGISTRY: &str = "/registry/";

/// A control-plane node whose etcd answers.
pub struct EncryptingNode<'a> {
    pub root: &'a Path,
    pub config: &'a ControlPlane,
    pub etcd: &'a EtcdClient,
    pub runner: &'a dyn Runner,
}

pub struct WrittenConfig {
    pub changed: bool,
    /// The record with its keys.
    pub readable: Box<UnwrappedKeySet>,
}

impl EncryptingNode<'_> {
    fn name(&self) -> &str {
        &self.config.node.name
    }

    fn store(&self) -> Store<'_> {
        Store(self.etcd)
    }

    /// The operator's public key, for the sealed copies.
    fn public_key(&self) -> Option<PublicKey> {
        self.config.recovery_public_key.as_ref().and_then(|key| key.parse().ok())
    }

    /// Creates the first key of a cluster that forms, before its first API server starts. The first node to call it
    /// creates the key. A store that an API server has used has its keys, or is damaged.
    ///
    /// # Errors
    /// There is no quorum, or the CAs cannot be read.
    pub fn begin(&self, now: SystemTime) -> anyhow::Result<()> {
        if !self.etcd.page(REGISTRY, None, 1)?.is_empty() {
            return Ok(());
        }
        let (key, authority) = unwrap_keys::new_key(self.root)?;
        self.store().make(&KeySet::first(&authority, key, now))
    }

    /// Writes the API server's configuration, and keeps the operator's copy in the store.
    ///
    /// # Errors
    /// There is no quorum or no record, or an error of the file system. The inner error is a finding: the keys are
    /// another cluster's.
    pub fn write_configuration(&self, now: SystemTime) -> anyhow::Result<Result<WrittenConfig, Finding>> {
        let readable = match unwrap_keys::find(self.root, &self.store(), now)? {
            KeyLookup::Unreadable(ids) => return Ok(Err(unreadable(&ids))),
            KeyLookup::Readable(readable) => readable,
        };
        // A store that refuses writes does not stop the API server: a new key is not used before the copy is stored.
        if let Err(error) = self.seal(&readable) {
            log::warn!("keeping the copy of the encryption keys that is sealed to the operator: {error:#}");
        }
        let changed = encryption_configuration::lay(self.root, &content(&readable))?;
        Ok(Ok(WrittenConfig { changed, readable }))
    }

    fn seal(&self, readable: &UnwrappedKeySet) -> anyhow::Result<()> {
        sealed_copy::ensure(&self.store(), self.name(), self.public_key().as_ref(), &readable.keys).map(drop)
    }

    /// Updates the operator's copy in the store. Then reports the generation of the keys to the other nodes, once this
    /// node's API server has loaded it.
    pub fn tell(&self, readable: &UnwrappedKeySet) -> anyhow::Result<()> {
        self.seal(readable)?;
        let (store, generation) = (self.store(), readable.seen.set.generation);
        if store.loaded()?.get(self.name()) == Some(&generation) {
            return Ok(());
        }
        if loaded::has_loaded(self.runner, self.config.address(), &content(readable))? {
            store.say_loaded(self.name(), generation)?;
        }
        Ok(())
    }

    /// Takes the next step if this node has etcd's leader. Returns a finding if the step waits for a long time. After
    /// an error the next call continues.
    pub fn advance_rotation(&self, readable: &UnwrappedKeySet, now: SystemTime) -> anyhow::Result<Option<Finding>> {
        if !self.etcd.status()?.is_leader() {
            return Ok(None);
        }
        let (store, set) = (self.store(), &readable.seen.set);
        let nodes: Vec<&str> = self.config.cluster.control_nodes.iter().map(|node| node.name.as_str()).collect();
        match set.next(&nodes, &store.loaded()?, now) {
            RotationStep::Idle => Ok(None),
            RotationStep::Wait(behind) => {
                let long = set.age(now).is_none_or(|age| age > self.config.timeout(STEP_LIMIT));
                Ok(long.then(|| waiting(&behind)))
            }
            RotationStep::Change(to) => {
                if store.change(&readable.seen, &to)? {
                    log::info!("Secrets are written with the encryption key {} from now on", to.write);
                }
                Ok(None)
            }
            RotationStep::Rewrite(to) => {
                let others = rewrite::others(self.etcd, &set.write)?;
                if others.is_empty() {
                    if store.change(&readable.seen, &to)? {
                        log::info!("all Secrets are encrypted with the key {}", to.write);
                    }
                    return Ok(None);
                }
                log::info!("writing {} Secrets again with the encryption key {}", others.len(), set.write);
                let (address, timeout) = (self.config.address(), self.config.timeout(WRITING));
                rewrite::again(&Api::as_administrator(address, self.root, timeout)?, &others)?;
                Ok(None)
            }
        }
    }

    /// A finding if there is no public key for the operator's copy.
    pub fn without_recovery(&self) -> Option<Finding> {
        let property = contract::properties::RECOVERY_PUBLIC_KEY;
        self.public_key().is_none().then(|| {
            codes::RECOVERY_KEY_MISSING.finding(
                property,
                "it is not set: if all control-plane nodes are lost, no snapshot gives a Secret back",
                format!(
                    "Make a key pair on your own machine (`kaas recovery-key new`), and set the public key on each control-plane \
                     node: `kaas-agent configure {property}=KEY`"
                ),
            )
        })
    }
}

fn content(readable: &UnwrappedKeySet) -> Zeroizing<Vec<u8>> {
    encryption_configuration::content(&readable.keys, &readable.seen.set.write)
}

fn waiting(behind: &[String]) -> Finding {
    codes::ENCRYPTION_WAITING.finding(
        "encryption of Secrets",
        format!("the next step to a new key waits for the API server on {}", behind.join(" and ")),
        "Bring these nodes up, or replace those that are lost; Secrets can be read and written meanwhile",
    )
}

fn unreadable(ids: &[String]) -> Finding {
    codes::ENCRYPTION_KEY_MISSING.finding(
        "encryption of Secrets",
        format!("the store is another cluster's, which encrypted its Secrets with {}", ids.join(" and ")),
        "Open the keys that the snapshot carries with your private key (`kaas recovery-key open`), and restore again with them: \
         `kaas-agent restore FILE --recovered-keys KEYS`",
    )
}
