//! A client of one etcd member, over the JSON gateway of its client port. Does not decide which requests are due.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::ports;
use contract::properties::ControlNode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::answers::{Added, Alarms, Members, Pair, Pairs, Refusal, Transaction};
pub use super::answers::{Alarm, Header, Member, Status};
use crate::host::https::Client;

/// etcd's health check of a member (`etcdserver/api/etcdhttp/health.go`). A member that is out of space counts as
/// healthy: it reads, deletes and votes, and space cannot be freed without it. [`super::upkeep`] handles the alarm.
pub const HEALTH: &str = "/health?exclude=NOSPACE";

/// Each request needs the member, a quorum read or a write also a quorum, and a write also room.
pub struct EtcdClient {
    client: Client,
}

impl EtcdClient {
    /// A client of the member of `node`, with the agent's own credentials in the directory `pki`. `timeout` limits each
    /// wait.
    pub fn new(node: &ControlNode, pki: &Path, timeout: Duration) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = pki.join("etcd").join(name);
            fs::read_to_string(&path).map(Zeroizing::new).with_context(|| format!("reading {}", path.display()))
        };
        let (certificate, key) = (read("healthcheck-client.crt")?, read("healthcheck-client.key")?);
        let server = SocketAddr::from((node.address, ports::ETCD_CLIENT));
        Ok(Self { client: Client::new(server, &read("ca.crt")?, &certificate, &key, timeout)? })
    }

    /// Whether the member sees a leader and answers a read that needs a quorum.
    pub fn healthy(&self) -> bool {
        self.client.get(HEALTH).is_ok_and(|answer| answer.code == 200)
    }

    pub fn status(&self) -> anyhow::Result<Status> {
        self.ask("maintenance/status", &json!({}))
    }

    /// The members that a majority agrees on.
    pub fn members(&self) -> anyhow::Result<Vec<Member>> {
        Ok(self.ask::<Members>("cluster/member/list", &json!({"linearizable": true}))?.members)
    }

    /// Adds a member as a learner, and returns its ID. etcd refuses if another learner exists, or too few members are
    /// up.
    pub fn add_learner(&self, peer_url: &str) -> anyhow::Result<u64> {
        Ok(self.ask::<Added>("cluster/member/add", &json!({"peerURLs": [peer_url], "isLearner": true}))?.member.id)
    }

    /// Promotes a learner to a voting member. etcd refuses if it is not in sync yet.
    pub fn promote(&self, member: u64) -> anyhow::Result<()> {
        self.ask::<Value>("cluster/member/promote", &json!({"ID": member.to_string()})).map(drop)
    }

    /// etcd refuses if too few of the others are up.
    pub fn remove(&self, member: u64) -> anyhow::Result<()> {
        self.ask::<Value>("cluster/member/remove", &json!({"ID": member.to_string()})).map(drop)
    }

    pub fn alarms(&self) -> anyhow::Result<Vec<Alarm>> {
        Ok(self.ask::<Alarms>("maintenance/alarm", &json!({"action": "GET"}))?.alarms)
    }

    pub fn disarm(&self, alarm: &Alarm) -> anyhow::Result<()> {
        let disarm = json!({"action": "DEACTIVATE", "memberID": alarm.member.to_string(), "alarm": alarm.kind});
        self.ask::<Value>("maintenance/alarm", &disarm).map(drop)
    }

    /// The keys that begin with `prefix`, which is ASCII, with their values. They come from this member's store alone:
    /// the answer may lag behind, and needs no quorum.
    pub fn list(&self, prefix: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let (from, end) = (BASE64_STANDARD.encode(prefix), BASE64_STANDARD.encode(end_of(prefix)?));
        decoded(self.ask("kv/range", &json!({"key": from, "range_end": end, "serializable": true}))?)
    }

    /// By a quorum read. `None` if the key does not exist.
    pub fn get(&self, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let pairs = self.ask::<Pairs>("kv/range", &json!({"key": BASE64_STANDARD.encode(key)}))?.kvs;
        let value =
            pairs.first().map(|pair| BASE64_STANDARD.decode(&pair.value).context("understanding etcd's base64"));
        value.transpose()
    }

    /// As [`Self::get`], with the revision of the last change.
    pub fn get_with_revision(&self, key: &str) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
        let pairs = self.ask::<Pairs>("kv/range", &json!({"key": BASE64_STANDARD.encode(key)}))?.kvs;
        let value = pairs.first().map(|pair| {
            let value = BASE64_STANDARD.decode(&pair.value).context("understanding etcd's base64")?;
            Ok((value, pair.mod_revision))
        });
        value.transpose()
    }

    /// At most `limit` of the keys that begin with `prefix`, which is ASCII, with their values, by a quorum read. They
    /// are the first ones, or those that follow the key `after`.
    pub fn page(&self, prefix: &str, after: Option<&str>, limit: u32) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let from = after.map_or_else(|| prefix.to_owned(), |after| format!("{after}\0"));
        let (from, end) = (BASE64_STANDARD.encode(from), BASE64_STANDARD.encode(end_of(prefix)?));
        decoded(self.ask("kv/range", &json!({"key": from, "range_end": end, "limit": limit.to_string()}))?)
    }

    /// Sets a key if this revision changed it last. Otherwise the key keeps its value. Returns whether the key was set.
    pub fn put_if_unchanged(&self, key: &str, value: &[u8], revision: u64) -> anyhow::Result<bool> {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        let same = json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()});
        let put = json!({"request_put": {"key": key, "value": value}});
        Ok(self.ask::<Transaction>("kv/txn", &json!({"compare": [same], "success": [put]}))?.succeeded)
    }

    /// Removes a key if it exists.
    pub fn delete(&self, key: &str) -> anyhow::Result<()> {
        self.ask::<Value>("kv/deleterange", &json!({"key": BASE64_STANDARD.encode(key)})).map(drop)
    }

    /// Sets a key that does not exist yet. A key that exists keeps its value.
    pub fn put_new(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        // A key that was never created has the revision 0.
        let absent = json!({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"});
        let put = json!({"request_put": {"key": key, "value": value}});
        self.ask::<Value>("kv/txn", &json!({"compare": [absent], "success": [put]})).map(drop)
    }

    pub fn put(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let put = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        self.ask::<Value>("kv/put", &put).map(drop)
    }

    /// Hands the leadership to another member. This one must be the leader.
    pub fn move_leader(&self, to: u64) -> anyhow::Result<()> {
        self.ask::<Value>("maintenance/transfer-leadership", &json!({"targetID": to.to_string()})).map(drop)
    }

    /// Discards the history before `revision`. An error if it was discarded already.
    pub fn compact(&self, revision: u64) -> anyhow::Result<()> {
        self.ask::<Value>("kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).map(drop)
    }

    /// Returns the unused part of the member's database to the file system. Meanwhile the member answers no other
    /// request. After an error the old database is in use.
    pub fn defragment(&self) -> anyhow::Result<()> {
        self.ask::<Value>("maintenance/defragment", &json!({})).map(drop)
    }

    fn ask<T: DeserializeOwned>(&self, what: &str, question: &Value) -> anyhow::Result<T> {
        let answer = self.client.post(&format!("/v3/{what}"), question)?;
        if answer.code != 200 {
            let refusal: Refusal = serde_json::from_slice(&answer.body).unwrap_or_default();
            bail!("etcd answers {what} with {}: {}", answer.code, refusal.message);
        }
        serde_json::from_slice(&answer.body).with_context(|| format!("understanding etcd's answer to {what}"))
    }
}

/// The first key after all keys that begin with `prefix`.
fn end_of(prefix: &str) -> anyhow::Result<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().context("an empty prefix")? += 1;
    Ok(end)
}

fn decoded(pairs: Pairs) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let decode = |text: &str| BASE64_STANDARD.decode(text).context("understanding etcd's base64");
    let pairs = pairs.kvs.iter();
    pairs
        .map(|Pair { key, value, .. }| Ok((String::from_utf8(decode(key)?).context("a key")?, decode(value)?)))
        .collect()
}
