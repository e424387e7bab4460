//! What the control plane has noted of each worker that it has let in: which Node object is the worker's, and at which address.
//! A node writes its own Node object, and with its certificate may make that again after it was deleted: so neither says who
//! belongs to the cluster, or whose an address is. Kept in a ConfigMap, which no node may write.
//!
//! A cluster that has workers already gets it in two steps, a while apart: it is made, and from then on whoever joins is noted;
//! then those that were there before are, and it is complete. Nobody is judged by it before that.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::join_token;
pub use contract::worker_records::NAME;
use contract::worker_records::{self, CONFIG_MAPS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Refusal;
use super::joining::JoiningWorker;
use super::node::{Node, reserved_address};
use crate::cluster::kubernetes::answer;
use crate::cluster::kubernetes::api::Api;
use crate::intake::config::ControlPlane;

/// The key that says that all workers are noted. No node has such a name.
pub const COMPLETE: &str = "_complete";

/// How long who joins is noted before those are who were there: whoever was let in by a control node that had not seen that has
/// been by then.
const BEGINNING: Duration = Duration::from_secs(60);

/// How long a worker is awaited from its certificate to its Node object.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a name is kept for the key that was let in, where no Node object has come: as long as that key's certificate may be
/// good, a year and a day (`--cluster-signing-duration` is a year). Who has it asks for no other one.
const CERTIFICATE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How many workers may be awaited at once that tokens without a name have let in. Who has such a token chooses the names.
const AWAITED: usize = 8;

/// How many names may be held at all by keys that such tokens have let in, where no Node object has come: nobody can take back
/// a certificate, and who is let in by a name later is the same worker to Kubernetes as who has it.
const HELD: usize = 32;

/// After how long without a Node object a held name is worth knowing.
const LATE: Duration = Duration::from_secs(15 * 60);

/// How many workers are noted: Kubernetes takes no ConfigMap of more than a MiB, and a record has some 200 bytes.
const MOST: usize = 4000;

/// What is noted of one worker. Fields may come, with a default; none goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    /// When it was let in (RFC 3339).
    pub joined: String,
    /// The token that it was let in with, by its public half, until that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What tells the key from others that it was let in with ([`super::csr::Asked::key`]), until its kubelet has a certificate to
    /// serve with, or, of a token without a name, until it has a Node object: nobody else is let in by its name until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The same of the key that was let in last, also once it has served: whoever has made its VM compares that with the key that
    /// the VM says ([`contract::worker_records::LetIn`]). None of one that was there before anything was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_in: Option<String>,
    /// Whether two keys were let in by its name while not everybody was noted: who has the other one's certificate is the same
    /// node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disputed: bool,
    /// The UID of its Node object; none until there is one. By the name of this field nodes are kept from making another one
    /// (`addons::comers`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its address; none until its kubelet has a certificate for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
}

impl WorkerRecord {
    /// That of a worker that is let in now, for the first time or again: its address is free to be another one.
    pub fn of_joining(token: Option<String>, known: Option<&Node>, now: SystemTime) -> Self {
        let joined = humantime::format_rfc3339_seconds(now).to_string();
        let uid = known.map(|node| node.uid().to_owned());
        Self { joined, token, key: None, let_in: None, is_disputed: false, uid, address: None }
    }

    /// The same, with the key that is let in.
    pub fn of_key(key: String, token: Option<String>, known: Option<&Node>, now: SystemTime) -> Self {
        Self { key: Some(key.clone()), let_in: Some(key), ..Self::of_joining(token, known, now) }
    }

    /// That of a worker whose Node object this is. Its key counts as long as its token does.
    pub fn with(&self, node: &Node) -> Self {
        let key = self.key.clone().filter(|_| self.token.is_some());
        Self { uid: Some(node.uid().to_owned()), key, ..self.clone() }
    }

    /// The same, beside what is known of one that was let in by its name before anything was noted: with another key that is
    /// somebody else, if he may still come.
    fn beside(&self, asked: Option<&Self>) -> Self {
        let own = self.let_in.as_ref().or(self.key.as_ref());
        let is_other = |asked: &Self| own.is_some_and(|own| asked.let_in.as_ref() != Some(own));
        let disputes = |asked: &Self| asked.is_disputed || (asked.key.is_some() && is_other(asked));
        Self { is_disputed: self.is_disputed || asked.is_some_and(disputes), ..self.clone() }
    }

    /// Whether this may be its Node object.
    fn is_of(&self, node: &Node) -> bool {
        self.uid.as_deref().is_none_or(|uid| uid == node.uid())
    }

    fn is_awaited(&self, now: SystemTime) -> bool {
        self.has_joined_within(PATIENCE, now)
    }

    /// Whether it may come late, with the certificate that it was given: its VM may have been off.
    fn is_held(&self, now: SystemTime) -> bool {
        self.key.is_some() && self.has_joined_within(CERTIFICATE, now)
    }

    fn is_of_no_named_token(&self) -> bool {
        self.uid.is_none() && self.token.is_none() && self.key.is_some()
    }

    fn has_joined_within(&self, limit: Duration, now: SystemTime) -> bool {
        self.uid.is_none() && self.is_younger_than(limit, now)
    }

    /// Whether it has a Node object, and a key was let in for it that has asked for no certificate to serve with. One with a key
    /// and an address has served: it was noted by an earlier version while not everybody was noted.
    fn has_not_served(&self) -> bool {
        self.uid.is_some() && self.key.is_some() && self.address.is_none()
    }

    /// The same of one that was let in a while ago.
    fn does_not_serve(&self, now: SystemTime) -> bool {
        self.has_not_served() && !self.is_younger_than(LATE, now)
    }

    fn is_younger_than(&self, limit: Duration, now: SystemTime) -> bool {
        humantime::parse_rfc3339(&self.joined).is_ok_and(|joined| now < joined + limit)
    }
}

/// All of them, by the names of nodes.
#[derive(Debug, Default)]
pub(super) struct WorkerRecords {
    version: String,
    begun: Option<SystemTime>,
    complete: bool,
    by_name: BTreeMap<String, WorkerRecord>,
}

/// The ConfigMap.
#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    creation_timestamp: String,
}

impl From<Object> for WorkerRecords {
    fn from(object: Object) -> Self {
        let complete = object.data.contains_key(COMPLETE);
        // What cannot be read is no record: its node is told so, and joins again.
        let read = |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
        Self {
            version: object.metadata.resource_version,
            begun: humantime::parse_rfc3339(&object.metadata.creation_timestamp).ok(),
            complete,
            by_name: object.data.into_iter().filter_map(read).collect(),
        }
    }
}

/// What is changed of them at once: none of a record that goes.
pub(super) type Changes = BTreeMap<String, Option<WorkerRecord>>;

impl WorkerRecords {
    /// Adds what is known of those that were let in before anything was noted. What is noted counts.
    pub fn remember_earlier(&mut self, earlier: &BTreeMap<String, WorkerRecord>) {
        for (name, asked) in earlier {
            let known = self.by_name.get(name).map_or_else(|| asked.clone(), |noted| noted.beside(Some(asked)));
            self.by_name.insert(name.clone(), known);
        }
    }

    /// Adds one that is let in and is not noted.
    pub fn remember(&mut self, name: String, record: WorkerRecord) {
        self.by_name.insert(name, record);
    }

    /// Whether two keys were let in by a name while not everybody was noted.
    pub fn are_disputed(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|record| record.is_disputed)
    }

    /// Whether everybody is noted who has been let in.
    pub fn are_complete(&self) -> bool {
        self.complete
    }

    /// Whether those are to be noted now who were there before.
    pub fn are_to_be_completed(&self, now: SystemTime) -> bool {
        !self.complete && self.begun.is_none_or(|begun| begun + BEGINNING <= now)
    }

    /// What is noted of the worker that has this Node object.
    ///
    /// # Errors
    /// Why that is no worker of this cluster.
    pub fn record_of(&self, node: &Node) -> Result<&WorkerRecord, &'static str> {
        match self.by_name.get(node.name()) {
            Some(record) if record.is_of(node) => Ok(record),
            Some(_) => Err("it was removed from the cluster, and has come back without a join token"),
            None => Err("no control node has let it in, or it was removed from the cluster: it needs a join token"),
        }
    }

    /// Judges whether a worker may be let in: by this name, with this key, by the token of this name that is for it alone, if it
    /// is. One that has a Node object already is let in again by such a token alone ([`super::joining::judge`]).
    pub fn check_admission(&self, who: &JoiningWorker, token: Option<&str>, now: SystemTime) -> Result<(), Refusal> {
        let name = &who.name;
        if self.by_name.len() >= MOST && !self.by_name.contains_key(name) {
            return Err(Refusal::now("the cluster has as many workers as can be noted"));
        }
        let known = self.by_name.get(name);
        match known.filter(|record| record.key.as_ref().is_some_and(|key| *key != who.key)) {
            Some(other) if other.uid.is_none() => {
                let with = match &other.token {
                    Some(own) if token == Some(own.as_str()) => "the same token has",
                    Some(_) => "a token of its own has",
                    None => "a token without a name has",
                };
                return Err(Refusal::Now(format!(
                    "{with} let another key in as {name}, which may come yet: give this worker another name, or free it if \
                     that was its own VM (worker.name-held); delete that token if others have it"
                )));
            }
            Some(other) if token.is_some() && other.token.as_deref() == token => {
                return Err(Refusal::Now(format!(
                    "somebody was let in as {name} with the same token and another key: if its VM was made anew, give it a \
                     token of its own; if not, delete the token, since others have it"
                )));
            }
            Some(other) if other.has_not_served() => {
                return Err(Refusal::Now(format!(
                    "another token has let another key in as {name}, which has not served since: who has that would be the same \
                     node. Remove that worker, and give the one that takes its place another name"
                )));
            }
            Some(_) | None => {}
        }
        let held = || self.by_name.values().filter(|record| record.is_of_no_named_token());
        let is_new = token.is_none() && known.is_none_or(|record| record.uid.is_some());
        if is_new && held().count() >= HELD {
            return Err(Refusal::Now(format!(
                "{HELD} names are held for who was let in by tokens without a name and has not come: make one for this worker \
                 alone, with the annotation {}, or free names (worker.name-held)",
                join_token::NODE
            )));
        }
        if is_new && held().filter(|record| record.is_awaited(now)).count() >= AWAITED {
            return Err(Refusal::Now(format!(
                "{AWAITED} workers are awaited that tokens without a name have let in: make one for this worker alone, with \
                 the annotation {}",
                join_token::NODE
            )));
        }
        Ok(())
    }

    /// The names that are nobody else's for who has not come in a while: first those by which two keys were let in, then those that
    /// a token without a name has let in.
    pub fn held(&self, now: SystemTime) -> Vec<String> {
        let is_late = |record: &WorkerRecord| record.is_held(now) && !record.has_joined_within(LATE, now);
        let without_node = || self.by_name.iter().filter(|(_, record)| record.uid.is_none());
        let disputed = without_node().filter(|(_, record)| record.is_disputed).map(|(name, _)| disputed(name));
        let late = without_node().filter(|(_, record)| !record.is_disputed && is_late(record));
        let (own, free): (Vec<_>, Vec<_>) = late.partition(|(_, record)| record.token.is_some());
        let own = own.into_iter().map(|(name, _)| format!("{name} (by a token of its own)"));
        disputed.chain(free.into_iter().map(|(name, _)| name.clone())).chain(own).collect()
    }

    /// The nodes that somebody else may be as well: two keys were let in by their names, or their last key has not served in a
    /// while, and somebody else may have asked with that.
    pub fn doubtful(&self, now: SystemTime) -> Vec<String> {
        let there = || self.by_name.iter().filter(|(_, record)| record.uid.is_some());
        let both = there().filter(|(_, record)| record.is_disputed).map(|(name, _)| disputed(name));
        let unserved = there().filter(|(_, record)| !record.is_disputed && record.does_not_serve(now));
        let unserved = unserved.map(|(name, _)| format!("{name} (its node is there, and has not served since)"));
        both.chain(unserved).collect()
    }

    /// The token that the worker of this name was let in with, if it may be there still.
    pub fn token_of(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.token.as_deref()
    }

    /// The other worker that has an address.
    pub fn holder(&self, address: Ipv4Addr, but: &str, nodes: &[Node]) -> Option<&str> {
        let there =
            |name: &str, record: &WorkerRecord| nodes.iter().any(|node| node.name() == name && record.is_of(node));
        let mut holders = self.by_name.iter().filter(|(name, record)| {
            name.as_str() != but && record.address == Some(address) && there(name.as_str(), record)
        });
        holders.next().map(|(name, _)| name.as_str())
    }

    /// What has changed with the cluster's nodes: a worker's Node object has come, or is gone for good. Which one it is has to be
    /// known before somebody deletes it.
    pub fn followed(&self, nodes: &[Node], now: SystemTime) -> Changes {
        let change = |(name, record): (&String, &WorkerRecord)| match nodes.iter().find(|node| node.name() == name) {
            Some(node) if record.uid.is_none() => Some((name.clone(), Some(record.with(node)))),
            Some(node) if record.is_of(node) => None,
            None if record.is_awaited(now) || record.is_held(now) => None,
            Some(_) | None => Some((name.clone(), None)),
        };
        self.by_name.iter().filter_map(change).collect()
    }

    /// Those of the workers that were there before anything was noted, and of those that are on their way, unless they are noted
    /// already: with which key and token they were let in. Of those that are, whether another key was let in before. Of two with
    /// one address the older one has it.
    pub fn adopted(
        &self,
        nodes: &[Node],
        joining: &BTreeMap<String, WorkerRecord>,
        config: &ControlPlane,
        now: SystemTime,
    ) -> Changes {
        let workers = || nodes.iter().filter(|node| !node.is_control(config));
        let own = |node: &Node| {
            let address = node.only_address().filter(|address| reserved_address(*address, config).is_none())?;
            let same = |other: &&Node| other.name() != node.name() && other.address() == Some(address.into());
            workers().filter(same).all(|other| node.is_older_than(other)).then_some(address)
        };
        let lacks = |name: &str| self.by_name.get(name).is_none_or(|record| record.address.is_none());
        let is_new = |name: &str| !self.by_name.contains_key(name) && nodes.iter().all(|node| node.name() != name);
        let coming = joining.iter().filter(|(name, _)| is_new(name));
        let coming = coming.map(|(name, record)| (name.clone(), Some(record.clone())));
        let there = workers().filter(|node| lacks(node.name())).map(|node| {
            // Its token has done its work, or ends soon.
            let asked = joining.get(node.name()).cloned().map(|asked| WorkerRecord { token: None, key: None, ..asked });
            let noted = self.record_of(node).ok().map(|noted| noted.beside(joining.get(node.name())));
            let known = noted.or(asked);
            let known = known.unwrap_or_else(|| WorkerRecord::of_joining(None, None, now));
            let known = known.with(node);
            // Of one that has not served yet that is noted once it does.
            let address = own(node).filter(|_| known.key.is_none());
            (node.name().to_owned(), Some(WorkerRecord { address, ..known }))
        });
        let awaited = self.by_name.iter().filter(|(_, record)| record.uid.is_none());
        let awaited = awaited.map(|(name, record)| (name, record, record.beside(joining.get(name))));
        let awaited = awaited.filter(|(_, record, beside)| beside != *record);
        let awaited = awaited.map(|(name, _, beside)| (name.clone(), Some(beside)));
        awaited.chain(coming).chain(there).collect()
    }
}

impl Api {
    /// What is noted, if it was begun.
    pub(super) fn worker_records(&self) -> anyhow::Result<Option<WorkerRecords>> {
        let found: Option<Object> = self.find(&worker_records::path()).context("reading what is noted of workers")?;
        Ok(found.map(WorkerRecords::from))
    }

    /// Begins to note who joins.
    pub(super) fn begin_worker_records(&self) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "kube-system"},
        });
        let answer = self.post(CONFIG_MAPS, &object)?;
        match answer.code {
            // 409: another control node was first.
            201 | 409 => Ok(()),
            _ => Err(answer::refused(&answer)).context("making the record of workers"),
        }
    }

    /// Changes what is noted, unless somebody has changed it since it was read. Says whether it did.
    pub(super) fn note_workers(
        &self,
        records: &mut WorkerRecords,
        changes: Changes,
        complete: bool,
    ) -> anyhow::Result<bool> {
        let mut data: Map<String, Value> =
            changes.iter().map(|(name, record)| (name.clone(), record.as_ref().map(text).into())).collect();
        if complete {
            data.insert(COMPLETE.to_owned(), "yes".into());
        }
        let body = json!({"metadata": {"resourceVersion": records.version}, "data": data});
        let answer = self.merge(&worker_records::path(), &body)?;
        // 404, 409: another control node was first.
        if [404, 409].contains(&answer.code) {
            return Ok(false);
        }
        let object: Object = serde_json::from_slice(&answer::body(answer).context("noting a worker")?)
            .context("understanding what is noted of workers")?;
        *records = object.into();
        Ok(true)
    }
}

/// The command by which a person frees a name.
pub(super) fn freeing(name: &str) -> String {
    format!(
        r#"kubectl -n kube-system patch configmap {NAME} --type=json -p '[{{"op":"remove","path":"/data/{name}"}}]'"#
    )
}

fn disputed(name: &str) -> String {
    format!("{name} (two keys were let in by it while not everybody was noted)")
}

fn text(record: &WorkerRecord) -> String {
    json!(record).to_string()
}
