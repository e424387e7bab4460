//! The certificates that workers ask for, and that Kubernetes leaves to others to approve: the one by which the cluster
//! knows a node (`joining`), and the one that its kubelet serves with (`serving`). Each control node judges what is there;
//! the first one that comes decides. What will never be right is denied, so that it is gone within the hour; the rest waits.

mod csr;
mod joining;
mod node;
mod serving;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::answer;
use super::api::Api;
use crate::intake::config::ControlPlane;
use node::Node;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The kinds of conditions by which a request is decided.
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";

/// How long a request may wait before that is worth knowing: a Node object has its address within seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many requests are named at once.
const NAMED: usize = 3;

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
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    creation_timestamp: String,
}

/// Who asks for what. The API server has written `username` and `groups`, and nothing of this can be changed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    /// None if it is longer than any that is taken: there may be many of them.
    #[serde(deserialize_with = "short")]
    request: Option<String>,
    signer_name: String,
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    usages: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<serde::de::IgnoredAny>,
}

fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|request| request.len() <= csr::LONGEST))
}

impl Spec {
    /// What is asked for, if it is for these uses alone, the last of them among them.
    fn asked(&self, usages: &[&str]) -> Result<csr::Asked, Refusal> {
        let main = usages.last().is_some_and(|last| self.usages.iter().any(|usage| usage == last));
        if !main || !self.usages.iter().all(|usage| usages.contains(&usage.as_str())) {
            return Err(Refusal::never("it is for other uses"));
        }
        let request = self.request.as_ref().ok_or_else(|| Refusal::never("it is longer than any kubelet's"))?;
        csr::Asked::read(request).map_err(|error| Refusal::Never(format!("{error:#}")))
    }

    fn is_of(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }
}

/// What was decided.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// What was approved.
    pub approved: Vec<String>,
    /// What was denied, and why.
    pub denied: Vec<String>,
    /// What has waited for long, and for what.
    pub waiting: Vec<String>,
}

impl Decided {
    /// What a person should know of it.
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
    /// Approves and denies what workers have asked for.
    ///
    /// # Errors
    /// The API does not answer. What was decided until then stays.
    pub fn approve_workers(&self, config: &ControlPlane, now: SystemTime) -> anyhow::Result<Decided> {
        let mut open = Vec::new();
        for signer in [joining::SIGNER, serving::SIGNER] {
            let path = format!("{REQUESTS}?fieldSelector=spec.signerName={signer}");
            let listed: Vec<Request> = self.list(&path).context("listing the requests for certificates")?;
            open.extend(listed.into_iter().filter(|one| one.status.conditions.is_empty()));
        }
        let mut decided = Decided::default();
        if open.is_empty() {
            return Ok(decided);
        }
        let nodes: Vec<Node> = self.list("/api/v1/nodes").context("listing the nodes")?;
        for request in &open {
            let judged = if request.spec.signer_name == serving::SIGNER {
                serving::judge(&request.spec, config, &nodes)
            } else if let Some(id) = joining::token_of(&request.spec) {
                joining::judge(&request.spec, joining::Token::find(self, id)?.as_ref(), config, &nodes)
            } else {
                // A node renews its certificate: Kubernetes looks after that.
                continue;
            };
            let (kind, why) = match judged {
                Ok(()) => (APPROVED, "a control node has judged it".to_owned()),
                Err(Refusal::Never(why)) => (DENIED, why),
                Err(Refusal::Now(why)) => {
                    decided.waiting.extend(request.is_late(now).then(|| request.told(&why)));
                    continue;
                }
            };
            match self.say(request, kind, &why)? {
                Some(refused) => decided.waiting.push(request.told(&refused)),
                None if kind == DENIED => decided.denied.push(request.told(&why)),
                None => decided.approved.push(request.who()),
            }
        }
        Ok(decided)
    }

    /// Says what is decided. Gives the API's reason if it does not take that.
    fn say(&self, request: &Request, kind: &str, why: &str) -> anyhow::Result<Option<String>> {
        let Metadata { name, uid, .. } = &request.metadata;
        let condition = json!({"type": kind, "status": "True", "reason": "KaasWorker", "message": told(why)});
        // With its UID: another one of the same name is another one.
        let body = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let answer = self.merge(&format!("{REQUESTS}/{name}/approval"), &body)?;
        Ok(match answer.code {
            // 404, 409, 422: another control node was first, or it is gone.
            200 | 404 | 409 | 422 => None,
            _ => Some(answer::refused(&answer).to_string()),
        })
    }
}

impl Request {
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

/// What somebody else may have written, on one line, short, and in plain characters.
fn told(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(300).collect()
}
