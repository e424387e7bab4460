//! Where the record of keys, what the nodes say of it, and the copies sealed to the operator stand in etcd.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::recovery::{KEPT_BELOW, Sealed};
use serde::{Deserialize, Serialize};

use super::key_set::KeySet;
use crate::cluster::etcd::client::EtcdClient;

const KEYS: &str = "/kaas/encryption/keys";
/// Below it each node says what its API server has loaded.
const NODES: &str = "/kaas/encryption/nodes/";

/// The record as it was read.
#[derive(Clone, Debug)]
pub struct StoredKeySet {
    pub set: KeySet,
    /// The revision of etcd that changed it last.
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct LoadedGeneration {
    generation: u64,
}

pub struct Store<'a>(pub &'a EtcdClient);

impl Store<'_> {
    /// The record, as the quorum has it; none if nothing was ever encrypted.
    ///
    /// # Errors
    /// There is no quorum, or it is not understood: a later version has written it.
    pub fn read(&self) -> anyhow::Result<Option<StoredKeySet>> {
        let Some((text, revision)) = self.0.get_with_revision(KEYS)? else { return Ok(None) };
        let set = serde_json::from_slice(&text).context("understanding the record of encryption keys in the store")?;
        Ok(Some(StoredKeySet { set, revision }))
    }

    /// Makes the record, unless somebody has.
    ///
    /// # Errors
    /// There is no quorum, or no room.
    pub fn make(&self, set: &KeySet) -> anyhow::Result<()> {
        self.0.put_new(KEYS, &serde_json::to_vec(set)?)
    }

    /// Changes the record, unless somebody has changed what was seen. Says whether it did.
    ///
    /// # Errors
    /// There is no quorum, or no room; whether it was changed is then not known, and reading it tells.
    pub fn change(&self, seen: &StoredKeySet, to: &KeySet) -> anyhow::Result<bool> {
        self.0.put_if_unchanged(KEYS, &serde_json::to_vec(to)?, seen.revision)
    }

    /// Which generation each node says to have loaded. One that is not understood has said nothing.
    pub fn loaded(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let read = |(name, text): (String, Vec<u8>)| {
            let loaded: LoadedGeneration = serde_json::from_slice(&text).ok()?;
            Some((name.strip_prefix(NODES)?.to_owned(), loaded.generation))
        };
        Ok(self.0.list(NODES)?.into_iter().filter_map(read).collect())
    }

    /// Says which generation a node has loaded.
    ///
    /// # Errors
    /// There is no quorum, or no room.
    pub fn say_loaded(&self, node: &str, generation: u64) -> anyhow::Result<()> {
        self.0.put(&format!("{NODES}{node}"), &serde_json::to_vec(&LoadedGeneration { generation })?)
    }

    /// The sealed copy that a node keeps.
    ///
    /// # Errors
    /// There is no quorum.
    pub fn sealed(&self, node: &str) -> anyhow::Result<Option<Sealed>> {
        let line = self.0.get(&format!("{KEPT_BELOW}{node}"))?;
        Ok(line.and_then(|line| Sealed::of_line(&line)))
    }

    /// Keeps a node's sealed copy, or none.
    ///
    /// # Errors
    /// There is no quorum, or no room.
    pub fn keep_sealed(&self, node: &str, sealed: Option<&Sealed>) -> anyhow::Result<()> {
        let key = format!("{KEPT_BELOW}{node}");
        match sealed {
            Some(sealed) => self.0.put(&key, sealed.line().as_bytes()),
            None => self.0.delete(&key),
        }
    }
}
