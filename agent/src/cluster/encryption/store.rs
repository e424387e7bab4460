//! The record of keys, the nodes' reports on it, and the copies sealed to the operator, in etcd.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::recovery::{KEPT_BELOW, Sealed};
use serde::{Deserialize, Serialize};

use super::key_set::KeySet;
use crate::cluster::etcd::client::EtcdClient;

const KEYS: &str = "/kaas/encryption/keys";
/// Below this key each node reports what its API server has loaded.
const NODES: &str = "/kaas/encryption/nodes/";

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
    /// The record, by a quorum read.
    ///
    /// # Errors
    /// There is no quorum, no record, or the record is not understood: a later version has written it.
    pub fn read(&self) -> anyhow::Result<StoredKeySet> {
        let (text, revision) = self.0.get_with_revision(KEYS)?.context("the store has no record of encryption keys")?;
        let set = KeySet::parse(&text).context("understanding the record of encryption keys in the store")?;
        Ok(StoredKeySet { set, revision })
    }

    pub fn make(&self, set: &KeySet) -> anyhow::Result<()> {
        self.0.put_new(KEYS, &serde_json::to_vec(set)?)
    }

    /// Changes the record, unless it was changed after it was read as `seen`. Returns whether it changed. After an
    /// error this is unknown: read the record again.
    pub fn change(&self, seen: &StoredKeySet, to: &KeySet) -> anyhow::Result<bool> {
        self.0.put_if_unchanged(KEYS, &serde_json::to_vec(to)?, seen.revision)
    }

    /// The generation that each node reports as loaded. A report that is not understood is left out.
    pub fn loaded(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let read = |(name, text): (String, Vec<u8>)| {
            let loaded: LoadedGeneration = serde_json::from_slice(&text).ok()?;
            Some((name.strip_prefix(NODES)?.to_owned(), loaded.generation))
        };
        Ok(self.0.list(NODES)?.into_iter().filter_map(read).collect())
    }

    pub fn say_loaded(&self, node: &str, generation: u64) -> anyhow::Result<()> {
        self.0.put(&format!("{NODES}{node}"), &serde_json::to_vec(&LoadedGeneration { generation })?)
    }

    pub fn sealed(&self, node: &str) -> anyhow::Result<Option<Sealed>> {
        let line = self.0.get(&format!("{KEPT_BELOW}{node}"))?;
        Ok(line.and_then(|line| Sealed::of_line(&line)))
    }

    /// `None` removes the copy.
    pub fn keep_sealed(&self, node: &str, sealed: Option<&Sealed>) -> anyhow::Result<()> {
        let key = format!("{KEPT_BELOW}{node}");
        match sealed {
            Some(sealed) => self.0.put(&key, sealed.line().as_bytes()),
            None => self.0.delete(&key),
        }
    }
}
