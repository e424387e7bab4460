//! The record in etcd, and its changes, without side effects.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The keys, and which one is used to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySet {
    /// Increases with each change.
    pub generation: u64,
    /// The time of the last change, in RFC 3339.
    pub since: String,
    /// Names the CA that has wrapped the keys.
    #[serde(rename = "authority")]
    pub ca: String,
    /// The keys by which Secrets may be encrypted. If the last one is not `write`, it will replace that.
    pub keys: Vec<WrappedKey>,
    /// The name of the key for new Secrets.
    pub write: String,
    /// Fields of a later version.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A key as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    pub id: String,
    /// The key, wrapped by the CA, in base64.
    pub wrapped: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationStep {
    Idle,
    /// These nodes' API servers have not loaded the set yet.
    Wait(Vec<String>),
    /// The set must change to this one.
    Change(KeySet),
    /// Every Secret that is not encrypted with the key `write` must be written again. Then the set must change to this
    /// one.
    Rewrite(KeySet),
}

impl KeySet {
    /// The first set of a cluster, whose Secrets are written with `key` from the beginning.
    pub fn first(authority: &str, key: WrappedKey, now: SystemTime) -> Self {
        let (ca, write) = (authority.to_owned(), key.id.clone());
        Self { generation: 1, since: at(now), ca, keys: vec![key], write, more: Map::new() }
    }

    /// The record of the store.
    ///
    /// # Errors
    /// It is not understood, or the store may have Secrets in clear: such a record has the member `clear`.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let set: Self = serde_json::from_slice(text)?;
        let is_clear = set.more.get("clear").is_some_and(|clear| *clear != Value::Bool(false));
        ensure!(
            !is_clear,
            "the store may have Secrets in clear, which this version does not encrypt: create the cluster again"
        );
        Ok(set)
    }

    /// The key that will replace `write`, if any.
    pub fn incoming(&self) -> Option<&str> {
        let last = self.keys.last()?.id.as_str();
        (self.write != last).then_some(last)
    }

    /// Whether Secrets may be encrypted with another key than `write`.
    pub fn has_former(&self) -> bool {
        self.keys.len() > 1
    }

    /// The set with another key that will replace `write`. `None` during another change.
    pub fn offered(&self, key: WrappedKey, now: SystemTime) -> Option<Self> {
        if self.has_former() {
            return None;
        }
        let keys = self.keys.iter().cloned().chain([key]).collect();
        Some(Self { keys, ..self.changed(now) })
    }

    /// The same keys, wrapped by another CA.
    pub fn rewrapped(&self, authority: &str, keys: Vec<WrappedKey>, now: SystemTime) -> Self {
        Self { ca: authority.to_owned(), keys, ..self.changed(now) }
    }

    /// The next step. `loaded` has the generation of the set that each node's API server has loaded.
    pub fn next(&self, nodes: &[&str], loaded: &BTreeMap<String, u64>, now: SystemTime) -> RotationStep {
        let next = if let Some(incoming) = self.incoming() {
            RotationStep::Change(Self { write: incoming.to_owned(), ..self.changed(now) })
        } else if self.has_former() {
            let keys = self.keys.iter().filter(|key| key.id == self.write).cloned().collect();
            RotationStep::Rewrite(Self { keys, ..self.changed(now) })
        } else {
            return RotationStep::Idle;
        };
        let behind = |node: &&&str| loaded.get(**node).is_none_or(|generation| *generation < self.generation);
        let behind: Vec<String> = nodes.iter().filter(behind).map(|node| (*node).to_owned()).collect();
        if behind.is_empty() { next } else { RotationStep::Wait(behind) }
    }

    /// The time since the last change. `None` if that is in the future: then a clock was wrong.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(humantime::parse_rfc3339(&self.since).ok()?).ok()
    }

    fn changed(&self, now: SystemTime) -> Self {
        Self { generation: self.generation + 1, since: at(now), ..self.clone() }
    }
}

fn at(now: SystemTime) -> String {
    humantime::format_rfc3339_seconds(now).to_string()
}
