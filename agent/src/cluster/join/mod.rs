//! How a worker joins its cluster: with a bootstrap token, and the hash of the cluster's CA.
//!
//! ```text
//! cluster-info, from any server ─► CA, if its hash is the pinned one and the token has signed it
//! with the token:  the cluster's answers to workers, its version, its nodes ─► checked
//!                  a request for a certificate, which a control-plane node approves ─► the worker's credentials
//! ```
//!
//! It follows kubeadm (`kubeadm join`: discovery by a token, TLS bootstrap of the kubelet), with the same objects in
//! the cluster and with tokens of kubeadm. The agent does it without kubeadm, so that each refusal has its code, and
//! nothing is written before all has been checked. The key is saved before the request for its certificate. After an
//! interruption the same request is sent again. [`worker_membership`] tells whether all is done.

pub mod credentials;
mod discovery;
mod judge;
pub mod published;
mod request;
pub mod settings;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::bios_uuid::BiosUuid;
use contract::codes;
use contract::finding::Finding;
use contract::image::ImageFacts;
use contract::ports;
use contract::properties;
use contract::secret::Secret;
use serde::de::DeserializeOwned;

use crate::cluster::kubernetes::{answer, pages};
use crate::cluster::pki::CertificateWithKey;
use crate::cluster::records::{Progress, Records};
use crate::host::https::{Answer, Client};
use crate::intake::config::{Config, LearnedCluster, Worker};

pub use credentials::{WorkerMembership, worker_membership};
use discovery::Token;
use judge::Node;
use published::PublishedCluster;
#[cfg(test)]
pub(in crate::cluster) use request::object;

/// The subject of a finding about an expired worker that is not asked for a token.
pub const CERTIFICATE: &str = "the worker's certificate";

#[derive(Debug)]
pub enum Error {
    /// The cluster does not answer, or is not ready for the worker yet. The worker tries again.
    Waiting(String),
    /// The operator must fix something.
    Refused(Box<Finding>),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Finding> for Error {
    fn from(finding: Finding) -> Self {
        Self::Refused(Box::new(finding))
    }
}

pub struct JoinContext<'a> {
    pub worker: &'a Worker,
    pub image: &'a ImageFacts,
    /// The BIOS UUID of its VM.
    pub machine: Option<BiosUuid>,
    pub root: &'a Path,
    pub timeout: Duration,
}

pub struct DiscoveredCluster {
    pub ca: String,
    /// The settings that the worker uses from now on.
    pub learned: LearnedCluster,
    /// Whether the cluster has a node of the worker's name, which is this VM.
    known: bool,
    client: Client,
}

impl JoinContext<'_> {
    /// Requests all facts that must be known before a file is written. Refuses the token, the CA, the version, the name
    /// and the address.
    pub fn discover(&self, token: &Secret) -> Result<DiscoveredCluster, Error> {
        let cluster = &self.worker.cluster;
        let server = SocketAddr::from((cluster.api_address, ports::API));
        let anyone = Client::without_verification(server, self.timeout)?;
        let info = self.found(anyone.get(discovery::PATH), "has not published what proves it")?;
        let token = Token::read(token).context("the join token is damaged on this node")?;
        let authority = match discovery::verified_ca(&info.body, &token, &cluster.ca_hash) {
            // Any server may answer that, without a proof: ask the cluster.
            Err(Error::Refused(unproved)) if unproved.code == codes::JOIN_TOKEN_REFUSED.code => {
                let authority = discovery::unsigned_ca(&info.body, &cluster.ca_hash)?;
                return Err(self.asked_whether(unproved, &authority, token.whole)?);
            }
            found => found?,
        };
        let client = Client::with_token(server, &authority, token.whole, self.timeout)?;
        let published: PublishedCluster = PublishedCluster::read(&self.told(&client, published::PATH)?)?;
        judge::check_cluster_name(&cluster.name, &published.cluster)?;
        judge::check_subnets(self.worker, published.network)?;
        let version: judge::Version = read(&self.told(&client, "/version")?)?;
        let nodes = self.nodes(&client)?;
        let kubernetes_minor = match judge::minor(self.image, &version, &nodes) {
            Err(skew) if judge::may_join_soon(self.image, &version, &nodes) => {
                return Err(Error::Waiting(format!(
                    "waiting for all control-plane nodes to be upgraded: {}",
                    skew.seen
                )));
            }
            judged => judged?,
        };
        judge::check_unique(self.worker, self.machine, &published, &nodes)?;
        let PublishedCluster { network, control_nodes, .. } = published;
        let known = nodes.iter().any(|node| node.is_called(&self.worker.node.name));
        Ok(DiscoveredCluster {
            ca: authority,
            learned: LearnedCluster { network, control_nodes, kubernetes_minor },
            known,
            client,
        })
    }

    /// The reason why a worker has not joined whose token is said to be refused. The token is sent only to a server
    /// that has a certificate of the pinned CA for the cluster's address. Only its answer counts.
    fn asked_whether(&self, unproved: Box<Finding>, authority: &str, token: &Secret) -> Result<Error, Error> {
        let server = SocketAddr::from((self.worker.cluster.api_address, ports::API));
        let answer = Client::with_token(server, authority, token, self.timeout)?.get("/version");
        Ok(match answer {
            Ok(answer) if [401, 403].contains(&answer.code) => Error::Refused(unproved),
            Ok(_) => Error::Waiting("the cluster has not published yet that it knows the token".to_owned()),
            Err(error) => Error::Waiting(format!(
                "the server at {server} says that the cluster does not know the token, and has not proved to be the cluster: {}",
                error.root_cause().to_string().lines().next().unwrap_or_default()
            )),
        })
    }

    /// Identifies the key of the requested certificate. Control-plane nodes record it for workers that they admit. The
    /// key is saved by then.
    pub fn key(&self) -> anyhow::Result<String> {
        request::digits(self)
    }

    /// The certificate by which the cluster knows this node. [`Error::Waiting`] until the cluster has signed it.
    pub fn certificate(&self, admission: &DiscoveredCluster) -> Result<CertificateWithKey, Error> {
        request::certificate(self, &admission.client, admission.known)
    }

    fn nodes(&self, client: &Client) -> Result<Vec<Node>, Error> {
        pages::items("/api/v1/nodes", |path| match pages::unless_too_long(client.get(path)).transpose() {
            Some(answer) => self.granted(answer).map(|answer| Some(answer.body)),
            None => Ok(None),
        })
    }

    /// The answer to a request for which the token gives the right.
    fn told(&self, client: &Client, path: &str) -> Result<Answer, Error> {
        self.granted(client.get(path))
    }

    fn granted(&self, answer: anyhow::Result<Answer>) -> Result<Answer, Error> {
        let answer = self.found(answer, "has not published what workers need")?;
        match answer.code {
            200 => Ok(answer),
            401 => Err(refused_token("the API server does not take it").into()),
            403 => Err(refused_token("it gives no right to join").into()),
            _ => Err(Error::Waiting(format!("waiting for the cluster: {}", answer::refused(&answer)))),
        }
    }

    /// An answer, if there is one. `missing` is the meaning of an answer 404.
    fn found(&self, answer: anyhow::Result<Answer>, missing: &str) -> Result<Answer, Error> {
        let server = format!("{}:{}", self.worker.cluster.api_address, ports::API);
        match answer {
            Ok(answer) if answer.code == 404 => {
                Err(Error::Waiting(format!("the cluster at {server} {missing} yet: is it a tenant cluster?")))
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                let cause = error.root_cause().to_string();
                let line = cause.lines().next().unwrap_or_default();
                Err(Error::Waiting(format!("waiting for the Kubernetes API at {server}: {line}")))
            }
        }
    }
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    Ok(serde_json::from_slice(&answer.body).context("understanding the API server's answer")?)
}

fn refused_token(why: &str) -> Finding {
    codes::JOIN_TOKEN_REFUSED.finding(
        properties::JOIN_TOKEN,
        why,
        "Make a new one on a control-plane node of the cluster, `kubeadm token create --ttl 1h --print-join-command`, and \
         give it in the form, on the console, or with `kaas-agent configure --from -`",
    )
}

/// The finding that a worker belongs to no cluster and has no token to join with.
pub fn no_token(standing: &WorkerMembership) -> Finding {
    let action = "Give it a new join token: in the form, on the console, or with `kaas-agent configure --from -`";
    match standing {
        // The console's form shows it next to the field for the new token.
        WorkerMembership::Expired(ended) => expired(properties::JOIN_TOKEN, *ended, action),
        _ => codes::JOIN_TOKEN_MISSING.finding(
            properties::JOIN_TOKEN,
            "this worker belongs to no cluster, and its token was erased",
            action,
        ),
    }
}

/// The finding that the cluster no longer knows the worker, with this `subject`.
pub fn expired(subject: &str, ended: SystemTime, action: &str) -> Finding {
    let seen = format!("the worker's certificate ended {}", humantime::format_rfc3339_seconds(ended));
    codes::JOIN_CERTIFICATE_EXPIRED.finding(subject, seen, action)
}

/// The progress of a worker, from its record below `root`. If its certificate has expired, it is no longer a member,
/// and that is recorded. This happens before its form is scrubbed, which may have the token for the next join.
pub fn progress(root: &Path, config: &Config, now: SystemTime) -> anyhow::Result<Progress> {
    let records = Records::new(root);
    let mut progress = records.progress()?;
    if let Config::Worker(worker) = config
        && progress.formed
        && matches!(worker_membership(root, worker, now), WorkerMembership::Expired(_))
    {
        progress.formed = false;
        records.save_progress(progress)?;
    }
    Ok(progress)
}
