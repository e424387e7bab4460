//! Answers of an etcd member (etcd 3.6, `api/etcdserverpb/rpc.proto`) in the JSON form of its gateway. There 64-bit
//! numbers are texts, and zero values are left out.

use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The member that answers, and its revision.
    pub header: Header,
    /// The size of its database file, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size: u64,
    /// The part of the database in use, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size_in_use: u64,
    /// The size beyond which it refuses writes, in bytes.
    #[serde(deserialize_with = "number")]
    pub db_size_quota: u64,
    /// The leader's ID. 0 if there is no leader.
    #[serde(deserialize_with = "number")]
    pub leader: u64,
    /// Whether it only follows, without a vote.
    pub is_learner: bool,
    pub version: String,
    /// The index of the log that it has applied.
    #[serde(deserialize_with = "number")]
    pub raft_applied_index: u64,
    /// The member's problems, including alarms.
    pub errors: Vec<String>,
}

impl Status {
    pub fn has_leader(&self) -> bool {
        self.leader != 0
    }

    pub fn is_leader(&self) -> bool {
        self.has_leader() && self.leader == self.header.member_id
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Header {
    #[serde(deserialize_with = "number")]
    pub cluster_id: u64,
    #[serde(deserialize_with = "number")]
    pub member_id: u64,
    /// The latest revision of the store.
    #[serde(deserialize_with = "number")]
    pub revision: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Member {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    /// Empty until the member has started.
    pub name: String,
    /// The URLs for other members.
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// Whether it only follows, without a vote.
    #[serde(rename = "isLearner")]
    pub is_learner: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Alarm {
    #[serde(rename = "memberID", deserialize_with = "number")]
    pub member: u64,
    /// `NOSPACE` or `CORRUPT`.
    #[serde(rename = "alarm")]
    pub kind: String,
}

#[derive(Deserialize)]
pub(super) struct Members {
    #[serde(default)]
    pub(super) members: Vec<Member>,
}

#[derive(Deserialize)]
pub(super) struct Alarms {
    #[serde(default)]
    pub(super) alarms: Vec<Alarm>,
}

/// A key with its value, both in base64 (proto3's JSON form of bytes).
#[derive(Deserialize)]
pub(super) struct Pair {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Transaction {
    pub(super) succeeded: bool,
}

#[derive(Deserialize)]
pub(super) struct Pairs {
    #[serde(default)]
    pub(super) kvs: Vec<Pair>,
}

#[derive(Deserialize)]
pub(super) struct Added {
    pub(super) member: Member,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) message: String,
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
    fn status_of_etcd_is_parsed() {
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
    fn unstarted_member_has_no_name() {
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
