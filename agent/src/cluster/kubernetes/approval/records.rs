//! The records of workers that the control plane has admitted: the Node object and the address of each. A node writes its own
//! Node object. With its certificate it can also create a deleted Node object again. So neither proves that a node belongs to
//! the cluster or has an address. The records are in a ConfigMap, which no node may write.
//!
//! A cluster that already has workers gets the ConfigMap in two steps, a while apart. First it is created, and joining workers
//! are recorded in it. Then the earlier workers are recorded, and it is complete. No worker is judged by it before that.

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

/// The key of a complete ConfigMap: all workers are recorded. No node has such a name.
pub const COMPLETE: &str = "_complete";

/// How long joining workers are recorded before the earlier ones are. A control-plane node may not have seen the new ConfigMap.
/// Within this time it has admitted its last worker without a record.
const BEGINNING: Duration = Duration::from_secs(60);

/// How long a worker is awaited from its certificate to its Node object.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a name is held for an admitted key without a Node object. The key's certificate may be valid that long: a year and
/// a day (`--cluster-signing-duration` is a year). A node with a certificate requests no other one.
const CERTIFICATE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How many workers may be awaited at once that tokens without a name have admitted. The holder of such a token chooses names.
const AWAITED: usize = 8;

/// How many names may be held in all by keys of such tokens without a Node object. Certificates cannot be revoked. To
/// Kubernetes, a node that is admitted by a held name later is the same worker as the owner of the certificate.
const HELD: usize = 32;

/// After how long without a Node object a held name is a finding.
const LATE: Duration = Duration::from_secs(15 * 60);

/// How many workers are recorded: Kubernetes takes no ConfigMap of more than a MiB, and a record has some 200 bytes.
const MOST: usize = 4000;

/// The record of one worker. Later versions may add fields with a default, and remove none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    /// When it was admitted (RFC 3339).
    pub joined: String,
    /// The token that admitted it, by its public half, until that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The fingerprint of its admitted key ([`super::csr::CsrContent::key`]), until its kubelet has a serving certificate. With a
    /// token without a name: until it has a Node object. Until then no other key is admitted by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fingerprint of the key that was admitted last, also after it has served. The creator of its VM compares that with the
    /// key that the VM reports ([`contract::worker_records::AdmittedWorker`]). Missing for workers that are older than the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_in: Option<String>,
    /// Whether two keys were admitted by its name while the records were incomplete. The owner of the other key's certificate is
    /// the same node to Kubernetes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disputed: bool,
    /// The UID of its Node object, if it has one. A policy reads this field by its name and keeps nodes from creating another
    /// Node object (`addons::node_admission`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its address; none until its kubelet has a certificate for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
}

impl WorkerRecord {
    /// The record of a worker that is admitted now, for the first time or again. It may come with another address.
    pub fn of_joining(token: Option<String>, known: Option<&Node>, now: SystemTime) -> Self {
        let joined = humantime::format_rfc3339_seconds(now).to_string();
        let uid = known.map(|node| node.uid().to_owned());
        Self { joined, token, key: None, let_in: None, is_disputed: false, uid, address: None }
    }

    /// The same, with the admitted key.
    pub fn of_key(key: String, token: Option<String>, known: Option<&Node>, now: SystemTime) -> Self {
        Self { key: Some(key.clone()), let_in: Some(key), ..Self::of_joining(token, known, now) }
    }

    /// The record with this Node object. Its key counts as long as its token does.
    pub fn with(&self, node: &Node) -> Self {
        let key = self.key.clone().filter(|_| self.token.is_some());
        Self { uid: Some(node.uid().to_owned()), key, ..self.clone() }
    }

    /// The record, compared with a worker of its name that was admitted before the records began. With another key that is
    /// another worker, which may still come.
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

    /// Whether it may come late, with its certificate: its VM may have been off.
    fn is_held(&self, now: SystemTime) -> bool {
        self.key.is_some() && self.has_joined_within(CERTIFICATE, now)
    }

    fn is_of_no_named_token(&self) -> bool {
        self.uid.is_none() && self.token.is_none() && self.key.is_some()
    }

    fn has_joined_within(&self, limit: Duration, now: SystemTime) -> bool {
        self.uid.is_none() && self.is_younger_than(limit, now)
    }

    /// Whether it has a Node object, and its admitted key has requested no serving certificate. A worker with a key and an address
    /// has served: an earlier version recorded it while the records were incomplete.
    fn has_not_served(&self) -> bool {
        self.uid.is_some() && self.key.is_some() && self.address.is_none()
    }

    /// The same for a worker that was admitted a while ago.
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
        // Unreadable records are left out. Requests of such a node are denied, and it joins again.
        let read = |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
        Self {
            version: object.metadata.resource_version,
            begun: humantime::parse_rfc3339(&object.metadata.creation_timestamp).ok(),
            complete,
            by_name: object.data.into_iter().filter_map(read).collect(),
        }
    }
}

/// Records that are changed at once. `None` removes a record.
pub(super) type Changes = BTreeMap<String, Option<WorkerRecord>>;

impl WorkerRecords {
    /// Adds workers that were admitted before the records began. Existing records win.
    pub fn remember_earlier(&mut self, earlier: &BTreeMap<String, WorkerRecord>) {
        for (name, asked) in earlier {
            let known = self.by_name.get(name).map_or_else(|| asked.clone(), |noted| noted.beside(Some(asked)));
            self.by_name.insert(name.clone(), known);
        }
    }

    /// Adds an admitted worker that is not recorded.
    pub fn remember(&mut self, name: String, record: WorkerRecord) {
        self.by_name.insert(name, record);
    }

    /// Whether two keys were admitted by a name while the records were incomplete.
    pub fn are_disputed(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|record| record.is_disputed)
    }

    /// Whether all admitted workers are recorded.
    pub fn are_complete(&self) -> bool {
        self.complete
    }

    /// Whether earlier workers must be recorded now.
    pub fn are_to_be_completed(&self, now: SystemTime) -> bool {
        !self.complete && self.begun.is_none_or(|begun| begun + BEGINNING <= now)
    }

    /// The record of the worker with this Node object.
    ///
    /// # Errors
    /// Why that is no worker of this cluster.
    pub fn record_of(&self, node: &Node) -> Result<&WorkerRecord, &'static str> {
        match self.by_name.get(node.name()) {
            Some(record) if record.is_of(node) => Ok(record),
            Some(_) => Err("it was removed from the cluster, and has come back without a join token"),
            None => Err("no control-plane node has admitted it, or it was removed: it needs a join token"),
        }
    }

    /// Judges whether a worker may be admitted by this name and key. `token` is the name of its token, if that is for this worker
    /// alone. Only such a token admits a worker again that already has a Node object ([`super::joining::judge`]).
    pub fn check_admission(&self, who: &JoiningWorker, token: Option<&str>, now: SystemTime) -> Result<(), Refusal> {
        let name = &who.name;
        if self.by_name.len() >= MOST && !self.by_name.contains_key(name) {
            return Err(Refusal::now("the cluster has as many workers as can be recorded"));
        }
        let known = self.by_name.get(name);
        match known.filter(|record| record.key.as_ref().is_some_and(|key| *key != who.key)) {
            Some(other) if other.uid.is_none() => {
                let with = match &other.token {
                    Some(own) if token == Some(own.as_str()) => "the same token has",
                    Some(_) => "another token for this name has",
                    None => "a token without a name has",
                };
                return Err(Refusal::Now(format!(
                    "{with} admitted another key as {name}, which may come yet: give this worker another name, or free it if \
                     that was its own VM (worker.name-held); delete that token if others have it"
                )));
            }
            Some(other) if token.is_some() && other.token.as_deref() == token => {
                return Err(Refusal::Now(format!(
                    "a node was admitted as {name} with the same token and another key: if its VM was created again, give it \
                     a separate token; if not, delete the token, since others have it"
                )));
            }
            Some(other) if other.has_not_served() => {
                return Err(Refusal::Now(format!(
                    "another token has admitted another key as {name}, which has not served since: both keys would be the same \
                     node. Remove that worker, and give the one that takes its place another name"
                )));
            }
            Some(_) | None => {}
        }
        let held = || self.by_name.values().filter(|record| record.is_of_no_named_token());
        let is_new = token.is_none() && known.is_none_or(|record| record.uid.is_some());
        if is_new && held().count() >= HELD {
            return Err(Refusal::Now(format!(
                "{HELD} names are held for nodes that tokens without a name have admitted and that have not come: make a token \
                 for this worker alone, with the annotation {}, or free names (worker.name-held)",
                join_token::NODE
            )));
        }
        if is_new && held().filter(|record| record.is_awaited(now)).count() >= AWAITED {
            return Err(Refusal::Now(format!(
                "{AWAITED} workers are awaited that tokens without a name have admitted: make a token for this worker alone, \
                 with the annotation {}",
                join_token::NODE
            )));
        }
        Ok(())
    }

    /// The names that are held for nodes that have not come in a while. First the names with two admitted keys, then those of
    /// tokens without a name.
    pub fn held(&self, now: SystemTime) -> Vec<String> {
        let is_late = |record: &WorkerRecord| record.is_held(now) && !record.has_joined_within(LATE, now);
        let without_node = || self.by_name.iter().filter(|(_, record)| record.uid.is_none());
        let disputed = without_node().filter(|(_, record)| record.is_disputed).map(|(name, _)| disputed(name));
        let late = without_node().filter(|(_, record)| !record.is_disputed && is_late(record));
        let (own, free): (Vec<_>, Vec<_>) = late.partition(|(_, record)| record.token.is_some());
        let own = own.into_iter().map(|(name, _)| format!("{name} (by a token for this name)"));
        disputed.chain(free.into_iter().map(|(name, _)| name.clone())).chain(own).collect()
    }

    /// The nodes that may share their name with another machine. Two keys were admitted by their names, or their last key has not
    /// served in a while and may be another machine's.
    pub fn doubtful(&self, now: SystemTime) -> Vec<String> {
        let there = || self.by_name.iter().filter(|(_, record)| record.uid.is_some());
        let both = there().filter(|(_, record)| record.is_disputed).map(|(name, _)| disputed(name));
        let unserved = there().filter(|(_, record)| !record.is_disputed && record.does_not_serve(now));
        let unserved = unserved.map(|(name, _)| format!("{name} (its node exists, and has not served since)"));
        both.chain(unserved).collect()
    }

    /// The token that admitted the worker of this name, if it may still exist.
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

    /// The changes of the cluster's nodes: a worker's Node object has come, or is gone for good. Its UID must be recorded before
    /// the object is deleted.
    pub fn followed(&self, nodes: &[Node], now: SystemTime) -> Changes {
        let change = |(name, record): (&String, &WorkerRecord)| match nodes.iter().find(|node| node.name() == name) {
            Some(node) if record.uid.is_none() => Some((name.clone(), Some(record.with(node)))),
            Some(node) if record.is_of(node) => None,
            None if record.is_awaited(now) || record.is_held(now) => None,
            Some(_) | None => Some((name.clone(), None)),
        };
        self.by_name.iter().filter_map(change).collect()
    }

    /// New records of workers that are older than the records or are joining, each with its admitted key and token. For recorded
    /// workers: whether another key was admitted before. If two workers have one address, the older one gets it.
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
            // Its token is used, or expires soon.
            let asked = joining.get(node.name()).cloned().map(|asked| WorkerRecord { token: None, key: None, ..asked });
            let noted = self.record_of(node).ok().map(|noted| noted.beside(joining.get(node.name())));
            let known = noted.or(asked);
            let known = known.unwrap_or_else(|| WorkerRecord::of_joining(None, None, now));
            let known = known.with(node);
            // The address of a worker that has not served yet is recorded once it does.
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
    /// The records, if they exist.
    pub(super) fn worker_records(&self) -> anyhow::Result<Option<WorkerRecords>> {
        let found: Option<Object> = self.find(&worker_records::path()).context("reading the records of workers")?;
        Ok(found.map(WorkerRecords::from))
    }

    /// Creates the ConfigMap, in which joining workers are recorded.
    pub(super) fn begin_worker_records(&self) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "kube-system"},
        });
        let answer = self.post(CONFIG_MAPS, &object)?;
        match answer.code {
            // 409: another control-plane node was first.
            201 | 409 => Ok(()),
            _ => Err(answer::refused(&answer)).context("creating the records of workers"),
        }
    }

    /// Changes the records, unless they have changed since they were read. Returns whether it did.
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
        // 404, 409: another control-plane node was first.
        if [404, 409].contains(&answer.code) {
            return Ok(false);
        }
        let object: Object = serde_json::from_slice(&answer::body(answer).context("recording a worker")?)
            .context("parsing the records of workers")?;
        *records = object.into();
        Ok(true)
    }
}

/// The command by which the operator frees a name.
pub(super) fn freeing(name: &str) -> String {
    format!(
        r#"kubectl -n kube-system patch configmap {NAME} --type=json -p '[{{"op":"remove","path":"/data/{name}"}}]'"#
    )
}

fn disputed(name: &str) -> String {
    format!("{name} (two keys were admitted by it while the records were incomplete)")
}

fn text(record: &WorkerRecord) -> String {
    json!(record).to_string()
}
