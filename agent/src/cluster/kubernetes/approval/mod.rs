//! Approves the certificates of workers, which Kubernetes leaves to others. A node gets its client certificate (`joining`), the
//! next ones of that kind (`renewal`), and the serving certificate of its kubelet (`serving`). Each control-plane node judges
//! all open requests; the first decision counts. Requests that can never be right are denied: Kubernetes removes them within
//! the hour. The others wait. Decisions about workers are recorded (`records`), and later ones follow the records.

mod csr;
mod follow;
mod joining;
mod node;
mod pending;
#[cfg(test)]
mod record_tests;
pub mod records;
mod renewal;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use contract::join_token;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::answer;
use super::api::{Api, Status};
use crate::intake::config::ControlPlane;
use node::Node;
use records::{WorkerRecord, WorkerRecords};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

const NODES: &str = "/api/v1/nodes";

type News = (String, WorkerRecord);

/// The kinds of conditions by which a request is decided.
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";

/// How long a request may wait before it is a finding: a Node object has its address within seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many requests are named at once.
const NAMED: usize = 3;

/// How many requests of one who asks are decided before others' come first.
const AT_ONCE: usize = 5;

/// How many requests are decided before all are read again.
const OF_A_PASS: usize = 100;

/// How many requests may fail before the rest waits for the next time.
const FAILURES: usize = 3;

/// The longest name of a request that is looked at: kubelets give them less than a hundred bytes.
pub const LONGEST_NAME: usize = 253;

/// The longest request that is looked at, in bytes of base64.
pub const LONGEST: usize = csr::LONGEST;

/// The state of the cluster by which the requests of one pass are judged.
struct Pass<'a> {
    config: &'a ControlPlane,
    nodes: Vec<Node>,
    now: SystemTime,
    /// Whether the records exist.
    is_kept: bool,
    /// Workers that were admitted before the records began, while the records are incomplete.
    earlier: BTreeMap<String, WorkerRecord>,
    /// The tokens that were asked for, by their names: many requests may come with one.
    tokens: BTreeMap<String, Option<joining::Token>>,
}

/// Why a request is not approved.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It will never be right: it is denied.
    Never(String),
    /// It waits until the cluster's objects say something else.
    Now(String),
}

impl Refusal {
    fn never(why: impl Into<String>) -> Self {
        Self::Never(why.into())
    }

    fn now(why: impl Into<String>) -> Self {
        Self::Now(why.into())
    }
}

/// `certificates.k8s.io/v1`, `CertificateSigningRequest`.
#[derive(Deserialize)]
struct Request {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    /// Empty if it is longer than any that is looked at: there may be many of them, each of hundreds of KB.
    #[serde(deserialize_with = "short_name")]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    creation_timestamp: String,
}

/// The requester and its request. The API server has written `username` and `groups`, and no field can be changed.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    /// None if it is longer than any that is taken: there may be many of them.
    #[serde(deserialize_with = "short")]
    request: Option<String>,
    signer_name: String,
    /// Empty if it is longer than any that is ours.
    #[serde(deserialize_with = "short_name")]
    username: String,
    /// Those that something is judged by.
    #[serde(default, deserialize_with = "groups_that_count")]
    groups: Vec<String>,
    #[serde(default)]
    usages: Vec<String>,
}

fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|request| request.len() <= csr::LONGEST))
}

fn short_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mut name = String::deserialize(deserializer)?;
    if name.len() > LONGEST_NAME {
        name = String::new();
    }
    Ok(name)
}

fn groups_that_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut groups: Vec<String> = Vec::deserialize(deserializer)?;
    groups.retain(|group| [super::NODES, join_token::GROUP].contains(&group.as_str()));
    Ok(groups)
}

impl Spec {
    /// The requested certificate, if it is for these uses alone and includes the last of them.
    fn asked(&self, usages: &[&str]) -> Result<csr::CsrContent, Refusal> {
        let main = usages.last().is_some_and(|last| self.usages.iter().any(|usage| usage == last));
        if !main || !self.usages.iter().all(|usage| usages.contains(&usage.as_str())) {
            return Err(Refusal::never("it is for other uses"));
        }
        let request = self.request.as_ref().ok_or_else(|| Refusal::never("it is longer than any kubelet's"))?;
        csr::CsrContent::read(request).map_err(|error| Refusal::Never(format!("{error:#}")))
    }

    fn is_of(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ApprovalReport {
    pub approved: Vec<String>,
    /// Denied requests, each with the reason.
    pub denied: Vec<String>,
    /// Requests that have waited for long, each with the reason.
    pub waiting: Vec<String>,
}

impl ApprovalReport {
    pub fn findings(&self) -> Findings {
        if self.waiting.is_empty() {
            return Findings::default();
        }
        let action = "Correct what it names: a worker's address, its Node object, or the token that it joins with";
        codes::WORKER_NOT_APPROVED.finding("certificates of workers", named(&self.waiting), action).into()
    }
}

/// The first of them, and how many others there are.
pub fn named(all: &[String]) -> String {
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if let Some(more) = all.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

impl Api {
    /// Approves and denies what workers have asked for. Gives what was decided, also where the API has not answered all of it:
    /// then why, too.
    pub fn approve_workers(&self, config: &ControlPlane, now: SystemTime) -> (ApprovalReport, anyhow::Result<()>) {
        let mut decided = ApprovalReport::default();
        let done = self.decide(config, now, &mut decided);
        (decided, done)
    }

    fn decide(&self, config: &ControlPlane, now: SystemTime, decided: &mut ApprovalReport) -> anyhow::Result<()> {
        if !self.has_open_requests()? {
            return Ok(());
        }
        // Read first: records and decisions of other control-plane nodes since then count.
        let kept = self.worker_records()?;
        let open = self.open_requests()?;
        decided.waiting.extend(open.left());
        let (open, strange): (Vec<_>, Vec<_>) = open.into_requests().into_iter().partition(Request::has_plain_name);
        if !strange.is_empty() {
            // Their names are useless to the operator, and unsafe in a path.
            decided
                .waiting
                .push(format!("{} requests have names that no kubelet uses, and are ignored", strange.len()));
        }
        let nodes: Vec<Node> = self.list(NODES).context("listing the nodes")?;
        // While the records are incomplete, the requests show which workers were admitted lately.
        let earlier = match &kept {
            Some(kept) if kept.are_complete() => BTreeMap::new(),
            Some(_) | None => self.joining(&nodes, now)?,
        };
        let is_kept = kept.is_some();
        let mut records = kept.unwrap_or_default();
        records.remember_earlier(&earlier);
        let mut pass = Pass { config, nodes, now, is_kept, earlier, tokens: BTreeMap::new() };
        let (mut failures, mut decisions) = (Vec::new(), 0);
        for request in &in_turn(open) {
            // Waiting requests take no turn of others.
            let Some(judged) = self.judge(request, &mut pass, &records)? else { continue };
            let (kind, why) = match judged {
                Ok(news) => match self.note(&mut records, news, &mut pass)? {
                    true => (APPROVED, "a control-plane node has judged it".to_owned()),
                    // Another control-plane node has changed the records: the next pass judges all again.
                    false => return Ok(()),
                },
                Err(Refusal::Never(why)) => (DENIED, why),
                Err(Refusal::Now(why)) => {
                    decided.waiting.extend(request.is_late(now).then(|| request.told(&why)));
                    continue;
                }
            };
            match self.say(request, kind, &why) {
                Ok(Some(refused)) => decided.waiting.push(request.told(&refused)),
                Ok(None) if kind == DENIED => decided.denied.push(request.told(&why)),
                Ok(None) => decided.approved.push(request.who()),
                // An error of one request does not delay the others.
                Err(error) => failures.push(error),
            }
            decisions += 1;
            if failures.len() >= FAILURES || decisions >= OF_A_PASS {
                break;
            }
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// The requests of the kinds that are decided here, and that are so. There may be very many.
    fn requests(&self, signer: &str, keep: impl Fn(&Request) -> bool) -> anyhow::Result<Vec<Request>> {
        let path = format!("{REQUESTS}?fieldSelector=spec.signerName={signer}");
        self.list_that(&path, keep).context("listing the requests for certificates")
    }

    /// Judges a request, unless it is not ours. Returns the record that must be written before it is approved.
    fn judge(
        &self,
        request: &Request,
        pass: &mut Pass<'_>,
        records: &WorkerRecords,
    ) -> anyhow::Result<Option<Result<Option<News>, Refusal>>> {
        let Pass { config, nodes, now, tokens, .. } = pass;
        let spec = &request.spec;
        let complete = Some(records).filter(|records| records.are_complete());
        if spec.signer_name == serving::SIGNER {
            return Ok(Some(serving::judge(spec, config, nodes, Some(records))));
        }
        if let Some(id) = joining::token_of(spec) {
            if !tokens.contains_key(id) {
                tokens.insert(id.to_owned(), joining::Token::find(self, id)?);
            }
            let token = tokens.get(id).and_then(Option::as_ref);
            let judged = joining::judge(spec, token, config, nodes);
            return Ok(Some(judged.and_then(|who| {
                let known = nodes.iter().find(|node| node.name() == who.name);
                // A token without a name may be for others too.
                let own = token.and_then(|token| token.node().map(|_| id.to_owned()));
                records.check_admission(&who, own.as_deref(), *now)?;
                let record = WorkerRecord::of_key(who.key, own, known, *now);
                Ok(Some((who.name.clone(), WorkerRecord { is_disputed: records.are_disputed(&who.name), ..record })))
            })));
        }
        Ok(renewal::worker_of(spec, config).map(|name| renewal::judge(name, spec, nodes, complete).map(|()| None)))
    }

    /// Writes a new record, or adds it for this pass alone while no records exist. Returns whether it did: not if another
    /// control-plane node has changed the records meanwhile.
    fn note(&self, records: &mut WorkerRecords, news: Option<News>, pass: &mut Pass<'_>) -> anyhow::Result<bool> {
        let Some((name, record)) = news else { return Ok(true) };
        if !pass.is_kept {
            // Without records a key counts as long as its token exists, also if the kubelet serves.
            if record.key.is_some() {
                records.remember(name, record);
            }
            return Ok(true);
        }
        // Once its kubelet serves, it needs no token. Without the token no other machine can become this node while it restarts.
        if let Some(used) = records.token_of(&name).filter(|_| record.token.is_none()) {
            self.delete(&join_token::path(used)).context("deleting the token of a worker that has joined")?;
            pass.tokens.remove(used);
        }
        let is_noted = self.note_workers(records, [(name, Some(record))].into(), false)?;
        records.remember_earlier(&pass.earlier);
        Ok(is_noted)
    }

    /// Says what is decided. Gives the API's reason if it does not take that.
    fn say(&self, request: &Request, kind: &str, why: &str) -> anyhow::Result<Option<String>> {
        let Metadata { name, uid, .. } = &request.metadata;
        let condition = json!({"type": kind, "status": "True", "reason": "KaasWorker", "message": told(why)});
        // With its UID: another one of the same name is another one.
        let body = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let answer = self.merge(&format!("{REQUESTS}/{name}/approval"), &body)?;
        Ok(match answer.code {
            // 404, 409, 422: another control-plane node was first, or the request is gone.
            200 | 404 | 409 | 422 => None,
            _ => Some(answer::refused(&answer).to_string()),
        })
    }
}

/// The requests in the order in which they are decided: the oldest first, and at most a few of each requester before those of
/// others. Of the requests with one token, the first one of each node comes before any second one.
fn in_turn(mut open: Vec<Request>) -> Vec<Request> {
    by_age(&mut open);
    let of_node = by_count(open, |request| (request.spec.username.clone(), joining::node_of(&request.spec)), 1);
    by_count(of_node, |request| request.spec.username.clone(), AT_ONCE)
}

/// The same, but of those of one kind no more than `at_once` before those of others.
fn by_count<K: Ord>(requests: Vec<Request>, kind: impl Fn(&Request) -> K, at_once: usize) -> Vec<Request> {
    let mut turns = turns(requests, kind);
    turns.sort_by_key(|(turn, _)| turn / at_once);
    turns.into_iter().map(|(_, request)| request).collect()
}

/// The same as they are, each with how many of its kind come before it.
fn turns<K: Ord>(requests: Vec<Request>, kind: impl Fn(&Request) -> K) -> Vec<(usize, Request)> {
    let mut before: BTreeMap<K, usize> = BTreeMap::new();
    let turn = |request: Request| {
        let asked = before.entry(kind(&request)).or_default();
        *asked += 1;
        (*asked - 1, request)
    };
    requests.into_iter().map(turn).collect()
}

/// The oldest first; of those of one second, tokens' before nodes'.
fn by_age(requests: &mut [Request]) {
    requests.sort_by(|one, other| one.age().cmp(&other.age()));
}

impl Request {
    /// Whether its name is one that kubelets and nodes of ours give. Kubernetes takes almost any
    /// (`ValidateCertificateRequestName`).
    fn has_plain_name(&self) -> bool {
        let name = &self.metadata.name;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        name.bytes().all(plain) && name.bytes().any(|byte| byte != b'.')
    }

    /// Sorts older requests first, then by requester.
    fn age(&self) -> (&str, &str) {
        (&self.metadata.creation_timestamp, &self.spec.username)
    }

    fn who(&self) -> String {
        told(&format!("{} of {}", self.metadata.name, self.spec.username))
    }

    /// The request, and what there is to say of it.
    fn told(&self, why: &str) -> String {
        told(&format!("{} of {}: {why}", self.metadata.name, self.spec.username))
    }

    /// Whether it has waited for longer than it takes a new node to be known.
    fn is_late(&self, now: SystemTime) -> bool {
        let made = humantime::parse_rfc3339(&self.metadata.creation_timestamp);
        made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > PATIENCE))
    }
}

/// Foreign text, short, on one line and in plain characters.
fn told(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(300).collect()
}
