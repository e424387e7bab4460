//! One etcd member, asked over the JSON gateway of its client port (etcd 3.6,
//! `api/etcdserverpb/rpc.proto`): 64-bit numbers are texts there, and what is
//! zero is left out. Knows nothing of when what is to be asked.

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
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::host::https::Client;

/// etcd's question for a member's health (`etcdserver/api/etcdhttp/health.go`). A member that is out of space is well:
/// it reads, deletes and votes, and a node without it could not be freed. [`super::upkeep`] sees to the alarm.
pub const HEALTH: &str = "/health?exclude=NOSPACE";

/// The member of one node.
pub struct EtcdClient {
    client: Client,
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Who answers, and how far it is.
    pub header: Header,
    /// The size of its database file, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size: u64,
    /// How much of that is in use, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size_in_use: u64,
    /// The size beyond which it refuses writes, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size_quota: u64,
    /// The leader's identity; 0 without one.
    #[serde(deserialize_with = "number")]
    pub leader: u64,
    /// Whether it only follows, without a vote.
    pub is_learner: bool,
    /// Its version of etcd.
    pub version: String,
    /// The index of the log that it has applied.
    #[serde(deserialize_with = "number")]
    pub raft_applied_index: u64,
    /// What is wrong with it, alarms included.
    pub errors: Vec<String>,
}

impl Status {
    /// Whether it sees a leader.
    pub fn has_leader(&self) -> bool {
        self.leader != 0
    }

    /// Whether it is the leader.
    pub fn is_leader(&self) -> bool {
        self.has_leader() && self.leader == self.header.member_id
    }
}

/// What every answer begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The cluster's identity.
    #[serde(deserialize_with = "number")]
    pub cluster_id: u64,
    /// The answering member's identity.
    #[serde(deserialize_with = "number")]
    pub member_id: u64,
    /// The latest revision of the store.
    #[serde(deserialize_with = "number")]
    pub revision: u64,
}

/// A member as the cluster lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its identity.
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// Whether it only follows, without a vote.
    #[serde(rename = "isLearner")]
    pub is_learner: bool,
}

/// An alarm that a member has raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Alarm {
    /// The member.
    #[serde(rename = "memberID", deserialize_with = "number")]
    pub member: u64,
    /// `NOSPACE` or `CORRUPT`.
    #[serde(rename = "alarm")]
    pub kind: String,
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Alarms {
    #[serde(default)]
    alarms: Vec<Alarm>,
}

/// A key with its value, both in base64 (proto3's JSON form of bytes).
#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Pairs {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Added {
    member: Member,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

impl EtcdClient {
    /// The member of `node`, asked with the agent's own credentials in the
    /// directory `pki`. `timeout` limits each wait.
    ///
    /// # Errors
    /// The credentials cannot be read.
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

    /// What the member says of itself.
    ///
    /// # Errors
    /// It does not answer, as with all that follow.
    pub fn status(&self) -> anyhow::Result<Status> {
        self.ask("maintenance/status", &json!({}))
    }

    /// The members that a majority agrees on.
    ///
    /// # Errors
    /// There is no quorum.
    pub fn members(&self) -> anyhow::Result<Vec<Member>> {
        Ok(self.ask::<Members>("cluster/member/list", &json!({"linearizable": true}))?.members)
    }

    /// Adds a member that only follows, and gives its identity.
    ///
    /// # Errors
    /// etcd refuses: there is a learner already, or too few members are up.
    pub fn add_learner(&self, peer_url: &str) -> anyhow::Result<u64> {
        Ok(self.ask::<Added>("cluster/member/add", &json!({"peerURLs": [peer_url], "isLearner": true}))?.member.id)
    }

    /// Gives a learner its vote.
    ///
    /// # Errors
    /// etcd refuses: it is not in sync yet, or no learner.
    pub fn promote(&self, member: u64) -> anyhow::Result<()> {
        self.ask::<Value>("cluster/member/promote", &json!({"ID": member.to_string()})).map(drop)
    }

    /// Removes a member.
    ///
    /// # Errors
    /// etcd refuses: too few of the others are up.
    pub fn remove(&self, member: u64) -> anyhow::Result<()> {
        self.ask::<Value>("cluster/member/remove", &json!({"ID": member.to_string()})).map(drop)
    }

    /// The alarms that stand.
    ///
    /// # Errors
    /// As [`EtcdClient::status`].
    pub fn alarms(&self) -> anyhow::Result<Vec<Alarm>> {
        Ok(self.ask::<Alarms>("maintenance/alarm", &json!({"action": "GET"}))?.alarms)
    }

    /// Lifts an alarm.
    ///
    /// # Errors
    /// As [`EtcdClient::status`].
    pub fn disarm(&self, alarm: &Alarm) -> anyhow::Result<()> {
        let disarm = json!({"action": "DEACTIVATE", "memberID": alarm.member.to_string(), "alarm": alarm.kind});
        self.ask::<Value>("maintenance/alarm", &disarm).map(drop)
    }

    /// The keys that begin with `prefix`, which is ASCII, with their values. Of this member's
    /// own store, without asking the others: it may lag behind, and needs no quorum.
    ///
    /// # Errors
    /// As [`EtcdClient::status`].
    pub fn list(&self, prefix: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().context("an empty prefix")? += 1;
        let question = json!({"key": BASE64_STANDARD.encode(prefix), "range_end": BASE64_STANDARD.encode(end), "serializable": true});
        let pairs = self.ask::<Pairs>("kv/range", &question)?.kvs;
        let decode = |text: &str| BASE64_STANDARD.decode(text).context("understanding etcd's base64");
        pairs
            .iter()
            .map(|Pair { key, value }| Ok((String::from_utf8(decode(key)?).context("a key")?, decode(value)?)))
            .collect()
    }

    /// The value of a key, as the quorum has it; none if there is no such key.
    ///
    /// # Errors
    /// There is no quorum.
    pub fn get(&self, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let pairs = self.ask::<Pairs>("kv/range", &json!({"key": BASE64_STANDARD.encode(key)}))?.kvs;
        let value =
            pairs.first().map(|pair| BASE64_STANDARD.decode(&pair.value).context("understanding etcd's base64"));
        value.transpose()
    }

    /// Sets a key that is not there yet; one that is stays as it is.
    ///
    /// # Errors
    /// There is no quorum, or no room.
    pub fn put_new(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        // A key that was never made has the revision 0.
        let absent = json!({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"});
        let put = json!({"request_put": {"key": key, "value": value}});
        self.ask::<Value>("kv/txn", &json!({"compare": [absent], "success": [put]})).map(drop)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// There is no quorum, or no room.
    pub fn put(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let put = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        self.ask::<Value>("kv/put", &put).map(drop)
    }

    /// Hands the leadership to another member. This one must be the leader.
    ///
    /// # Errors
    /// It is not, or the other one does not take it.
    pub fn move_leader(&self, to: u64) -> anyhow::Result<()> {
        self.ask::<Value>("maintenance/transfer-leadership", &json!({"targetID": to.to_string()})).map(drop)
    }

    /// Forgets what was before `revision`.
    ///
    /// # Errors
    /// It was forgotten already.
    pub fn compact(&self, revision: u64) -> anyhow::Result<()> {
        self.ask::<Value>("kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).map(drop)
    }

    /// Gives what the member's database does not use back to the file system.
    /// The member answers nobody else meanwhile.
    ///
    /// # Errors
    /// As [`EtcdClient::status`]; the old database is then in use.
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

/// A 64-bit number as text, or a number.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(u64),
    }
    match Number::deserialize(deserializer)? {
        Number::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Number::Plain(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_as_etcd_writes_it() {
        // etcd 3.6.16.
        let status: Status = serde_json::from_str(
            r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"7",
                "raft_term":"2"},"version":"3.6.16","dbSize":"20480","leader":"10276657743932975437","raftIndex":"10",
                "raftTerm":"2","raftAppliedIndex":"10","dbSizeInUse":"16384","storageVersion":"3.6.0",
                "dbSizeQuota":"2147483648","downgradeInfo":{}}"#,
        )
        .unwrap();
        assert!(status.is_leader() && !status.is_learner);
        assert_eq!((status.db_size, status.db_size_in_use, status.db_size_quota), (20480, 16384, 2 << 30));
        assert_eq!(status.header.revision, 7);
        assert_eq!((status.version.as_str(), status.raft_applied_index), ("3.6.16", 10));
    }

    #[test]
    fn a_member_that_has_not_started_has_no_name_and_a_lone_one_no_leader() {
        let list: Members = serde_json::from_str(
            r#"{"header":{},"members":[{"ID":"1","peerURLs":["https://10.0.0.1:2380"],"isLearner":true},
                {"ID":"2","name":"b","peerURLs":["https://10.0.0.2:2380"],"clientURLs":[]}]}"#,
        )
        .unwrap();
        assert_eq!((list.members[0].name.as_str(), list.members[0].is_learner), ("", true));
        assert_eq!((list.members[1].name.as_str(), list.members[1].id), ("b", 2));
        assert!(!Status::default().is_leader());
    }
}
