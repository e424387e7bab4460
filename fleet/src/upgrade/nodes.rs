//! Requests of an upgrade to the nodes and to the cluster, over HTTPS.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::ports;
use contract::renewal;
use contract::swap::{self, Rejection};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::lease::SpaceQuota;
use crate::nodes::{Answer, Answered, Client, Method, told};

/// How long a node may take for a snapshot.
const SNAPSHOT: Duration = Duration::from_secs(600);
const STATUS: &str = "/api/v1/namespaces/kube-system/configmaps/kaas-upgrade";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const CONTROL_NODES: &str = "/api/v1/nodes?labelSelector=node-role.kubernetes.io%2Fcontrol-plane";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The node is at it: ask again.
    Begun,
    Done,
    Refused(Rejection),
    /// The node's image does not know of it.
    Unknown,
}

/// A change of a node. A repeated request continues it.
#[derive(Clone, Copy, Debug)]
pub enum NodeRequest<'a> {
    /// Prepares the swap.
    BeginSwap(&'a swap::Request),
    /// Undoes the preparation.
    CancelSwap(Uuid),
    /// Lets a healthy node hand over the virtual IP, etcd's lead and its pods. Its VM is stopped in a rollback.
    Evacuate(&'a swap::EvacuationRequest),
    /// Lets a node that was evacuated take its part again.
    CancelEvacuation(Uuid),
    /// Makes a node's swap final. It names the swap: a late request could find the next one.
    Commit(Uuid),
    /// Raises the node to another minor version of Kubernetes, or only judges that.
    UpgradeKubernetes(&'a kubernetes_upgrade::Request),
    /// Renews the node's certificates. A node is done when its control plane runs with the new ones.
    RenewCertificates(Uuid),
}

/// The nodes and their cluster.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Makes sure that credentials for nodes are at hand. It may take minutes where they are asked for first: a caller
    /// with a time limit calls this before. Requests that change a node use the credentials at hand, and wait for
    /// nothing else.
    ///
    /// # Errors
    /// When no credentials are at hand or available.
    async fn ready(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// The UID of the namespace kube-system. It identifies the cluster.
    async fn cluster(&self) -> anyhow::Result<Uuid>;

    /// The control-plane nodes by name and address.
    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>>;

    /// A node's statement about itself.
    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node>;

    /// Asks a node for a change, or for its progress.
    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked>;

    /// Pulls a fresh snapshot of etcd into a file and returns its size in bytes.
    ///
    /// # Errors
    /// When no complete snapshot arrives, or there is no room for it.
    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64>;

    /// Lets the cluster show users how far the upgrade is, as JSON. No decision reads it.
    async fn publish(&self, status: &str) -> anyhow::Result<()>;
}

#[async_trait]
impl Nodes for Client {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        let namespace = found(&self.ask_api(Method::GET, "/api/v1/namespaces/kube-system", None).await?)?;
        let uid = namespace.context("there is no namespace kube-system")?["metadata"]["uid"].clone();
        serde_json::from_value(uid).context("reading the cluster's identity")
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        let list = found(&self.ask_api(Method::GET, CONTROL_NODES, None).await?)?.unwrap_or_default();
        list["items"].as_array().into_iter().flatten().map(named_address).collect()
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        facts_of(&self.ask_node(node, Method::GET, "/v1/node", None).await?)
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        let (method, path, body) = match request {
            NodeRequest::BeginSwap(swap) => (Method::POST, "/v1/swap".to_owned(), Some(serde_json::to_value(swap)?)),
            NodeRequest::CancelSwap(swap) => (Method::DELETE, format!("/v1/swap/{swap}"), None),
            NodeRequest::Evacuate(request) => {
                (Method::POST, "/v1/evacuate".to_owned(), Some(serde_json::to_value(request)?))
            }
            NodeRequest::CancelEvacuation(id) => (Method::DELETE, format!("/v1/evacuate/{id}"), None),
            NodeRequest::Commit(swap) => {
                let request = swap::CommitRequest { swap: Some(swap) };
                (Method::POST, "/v1/commit".to_owned(), Some(serde_json::to_value(request)?))
            }
            NodeRequest::UpgradeKubernetes(request) => {
                (Method::POST, "/v1/kubernetes".to_owned(), Some(serde_json::to_value(request)?))
            }
            NodeRequest::RenewCertificates(id) => {
                (Method::POST, renewal::PATH.to_owned(), Some(serde_json::to_value(renewal::Request { id })?))
            }
        };
        asked(&self.ask_node(node, method, &path, body.as_ref()).await?)
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.pull_snapshot(node, ports::NODE, to, room, SNAPSHOT).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"status": status},
            "metadata": {"name": "kaas-upgrade", "namespace": "kube-system"},
        });
        let mut answer = self.ask_api(Method::PUT, STATUS, Some(&object)).await?;
        if answer.status == 404 {
            // It may have the room that the next one needs.
            drop(answer);
            answer = self.ask_api(Method::POST, CONFIG_MAPS, Some(&object)).await?;
        }
        written(&answer)
    }
}

/// The servers, as errors name them.
const API: &str = "the API server";
const NODE: &str = "the node";

/// The object of an answer. `None` if no object has this name.
fn found(answer: &Answer) -> anyhow::Result<Option<Value>> {
    match answer.status {
        200 => answer.json().map(Some),
        404 => Ok(None),
        _ => Err(Answered::by(API, answer).into()),
    }
}

fn written(answer: &Answer) -> anyhow::Result<()> {
    match answer.status {
        200 | 201 => Ok(()),
        _ => Err(Answered::by(API, answer).into()),
    }
}

fn asked(answer: &Answer) -> anyhow::Result<Asked> {
    match answer.status {
        200 => Ok(Asked::Done),
        202 => Ok(Asked::Begun),
        409 => Ok(Asked::Refused(answer.json()?)),
        404 | 405 => Ok(Asked::Unknown),
        _ => Err(Answered::by(NODE, answer).into()),
    }
}

/// A node's answer, if its name is valid.
pub(super) fn facts_of(answer: &Answer) -> anyhow::Result<Node> {
    let facts: Node = match answer.status {
        200 => answer.json()?,
        _ => return Err(Answered::by(NODE, answer).into()),
    };
    is_name(&facts.node)?;
    Ok(facts)
}

/// Refuses names that Kubernetes does not accept for a node: a DNS subdomain (RFC 1123, section 2.1), lower-case.
pub(super) fn is_name(name: &str) -> anyhow::Result<()> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        let must = "it must be a DNS name of small letters, digits, hyphens and dots";
        return Err(Answered::with(format!("{:?} is no name of a node: {must}", told(name))).into());
    }
    Ok(())
}

fn named_address(node: &Value) -> anyhow::Result<(String, Ipv4Addr)> {
    let name = node["metadata"]["name"].as_str().context("a node without a name")?;
    is_name(name)?;
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
    let address = internal.find_map(|address| address["address"].as_str()?.parse().ok());
    Ok((name.to_owned(), address.with_context(|| format!("the node {name} has no IPv4 address"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer::of(status, body.as_bytes().to_vec())
    }

    #[test]
    fn a_refusal_carries_code_and_reason() {
        let refused = asked(&answer(409, r#"{"code":"swap.quorum","reason":"cp2 is not healthy"}"#)).unwrap();
        let Asked::Refused(refused) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.to_string(), "cp2 is not healthy [swap.quorum]");
        assert_eq!(asked(&answer(202, "")).unwrap(), Asked::Begun);
        let error = asked(&answer(403, "this takes another client certificate\n")).unwrap_err().to_string();
        assert_eq!(error, "the node answered 403 Forbidden: this takes another client certificate");
    }

    #[test]
    fn a_nodes_address_is_its_internal_one() {
        let node = json!({"metadata": {"name": "cp1"}, "status": {"addresses": [
            {"type": "Hostname", "address": "cp1"}, {"type": "InternalIP", "address": "10.0.0.11"}]}});
        assert_eq!(named_address(&node).unwrap(), ("cp1".to_owned(), Ipv4Addr::new(10, 0, 0, 11)));
        assert!(named_address(&json!({"metadata": {"name": "cp1"}})).is_err());
    }

    #[test]
    fn node_name_must_be_a_dns_name() {
        for name in ["cp1", "cp-1.example.com", "0", &"a".repeat(63)] {
            is_name(name).unwrap();
        }
        let forged = "cp1 at 10.0.0.11\n  the hypervisor has: cp1, on\u{1b}[8m";
        for name in ["", "-a", "a-", "a..b", "CP1", "cp 1", "cp_1", "ср1", &"a".repeat(64), forged] {
            let error = is_name(name).unwrap_err().to_string();
            assert!(error.contains("no name of a node") && !error.chars().any(char::is_control), "{error}");
            let addresses = [json!({"type": "InternalIP", "address": "10.0.0.11"})];
            let node = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
            assert!(named_address(&node).unwrap_err().to_string().contains("no name of a node"), "{name:?}");
            let mut facts = json!({
                "node": "cp1", "image": {"name": "i", "version": "1", "build": "b", "publisher": null},
                "disk": Uuid::nil(), "holder": null, "generation": 1, "kubernetes": {"version": "1", "carried": []},
                "etcd": null, "virtual_address": null, "ready": true, "good": null, "swap": null,
            });
            assert_eq!(facts_of(&answer(200, &facts.to_string())).unwrap().node, "cp1");
            facts["node"] = json!(name);
            let error = facts_of(&answer(200, &facts.to_string())).unwrap_err().to_string();
            assert!(error.contains("no name of a node"), "{error}");
        }
    }
}
