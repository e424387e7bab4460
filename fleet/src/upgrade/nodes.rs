//! What an upgrade asks of the nodes and of the cluster, and how it is asked
//! over HTTPS.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::ports;
use contract::swap::{self, Refused};
use serde_json::{Value, json};
use uuid::Uuid;

use super::lease::Lease;
use crate::node::{Answer, Client, Method};

/// How long a node may take for a snapshot.
const SNAPSHOT: Duration = Duration::from_secs(600);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kaas-upgrade";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const JOURNAL: &str = "/api/v1/namespaces/kube-system/configmaps/kaas-upgrade";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const CONTROL_NODES: &str = "/api/v1/nodes?labelSelector=node-role.kubernetes.io%2Fcontrol-plane";

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The node is at it: ask again.
    Begun,
    /// It is done.
    Done,
    /// The node refuses.
    Refused(Refused),
}

/// The nodes and their cluster.
pub trait Nodes: Sync {
    /// The UID of the namespace kube-system: what tells one cluster from another.
    ///
    /// # Errors
    /// When the API does not answer.
    fn cluster(&self) -> anyhow::Result<Uuid>;

    /// The control nodes by name and address.
    ///
    /// # Errors
    /// When the API does not answer.
    fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>>;

    /// What a node says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node>;

    /// Lets a node prepare the swap, or go on with it.
    ///
    /// # Errors
    /// When it does not answer.
    fn begin_swap(&self, node: Ipv4Addr, swap: &swap::Request) -> anyhow::Result<Asked>;

    /// Lets a node undo the preparation.
    ///
    /// # Errors
    /// When it does not answer.
    fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked>;

    /// Makes a node's swap final.
    ///
    /// # Errors
    /// When it does not answer.
    fn commit(&self, node: Ipv4Addr) -> anyhow::Result<Asked>;

    /// Lets a node go to another minor of Kubernetes, or go on with that, or only judge it.
    ///
    /// # Errors
    /// When it does not answer.
    fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked>;

    /// Pulls a fresh snapshot of etcd into a file and returns its size in bytes.
    ///
    /// # Errors
    /// When none comes whole.
    fn snapshot(&self, node: Ipv4Addr, to: &Path) -> anyhow::Result<u64>;

    /// The cluster's lock for upgrades.
    ///
    /// # Errors
    /// When the API does not answer.
    fn lease(&self) -> anyhow::Result<Option<Lease>>;

    /// Writes the lock if it is still as it was read: `lease.version` says so.
    ///
    /// # Errors
    /// When somebody else has written it since, or the API does not answer.
    fn write_lease(&self, lease: &Lease) -> anyhow::Result<()>;

    /// The journal that the cluster keeps.
    ///
    /// # Errors
    /// When the API does not answer.
    fn journal(&self) -> anyhow::Result<Option<String>>;

    /// Lets the cluster keep the journal.
    ///
    /// # Errors
    /// When the API does not answer.
    fn write_journal(&self, journal: &str) -> anyhow::Result<()>;
}

impl Nodes for Client {
    fn cluster(&self) -> anyhow::Result<Uuid> {
        let namespace = found(&self.ask_api(Method::GET, "/api/v1/namespaces/kube-system", None)?)?;
        let uid = namespace.context("there is no namespace kube-system")?["metadata"]["uid"].clone();
        serde_json::from_value(uid).context("reading the cluster's identity")
    }

    fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        let list = found(&self.ask_api(Method::GET, CONTROL_NODES, None)?)?.unwrap_or_default();
        list["items"].as_array().into_iter().flatten().map(named_address).collect()
    }

    fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        let answer = self.ask_node(node, Method::GET, "/v1/node", None)?;
        match answer.status {
            200 => answer.json(),
            404 => bail!("its image does not know of image swaps (no /v1/node); upgrade it by hand once"),
            _ => Err(unexpected(&answer)),
        }
    }

    fn begin_swap(&self, node: Ipv4Addr, swap: &swap::Request) -> anyhow::Result<Asked> {
        asked(&self.ask_node(node, Method::POST, "/v1/swap", Some(&serde_json::to_value(swap)?))?)
    }

    fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        asked(&self.ask_node(node, Method::DELETE, &format!("/v1/swap/{swap}"), None)?)
    }

    fn commit(&self, node: Ipv4Addr) -> anyhow::Result<Asked> {
        asked(&self.ask_node(node, Method::POST, "/v1/commit", Some(&json!({})))?)
    }

    fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        asked(&self.ask_node(node, Method::POST, "/v1/kubernetes", Some(&serde_json::to_value(request)?))?)
    }

    fn snapshot(&self, node: Ipv4Addr, to: &Path) -> anyhow::Result<u64> {
        self.pull_snapshot(node, ports::NODE, to, SNAPSHOT)
    }

    fn lease(&self) -> anyhow::Result<Option<Lease>> {
        let object = found(&self.ask_api(Method::GET, LEASE, None)?)?;
        object.map(|object| Lease::from_object(&object).context("reading the lock")).transpose()
    }

    fn write_lease(&self, lease: &Lease) -> anyhow::Result<()> {
        let object = lease.to_object();
        let answer = match lease.version {
            None => self.ask_api(Method::POST, LEASES, Some(&object))?,
            Some(_) => self.ask_api(Method::PUT, LEASE, Some(&object))?,
        };
        written(&answer)
    }

    fn journal(&self) -> anyhow::Result<Option<String>> {
        let object = found(&self.ask_api(Method::GET, JOURNAL, None)?)?;
        Ok(object.and_then(|object| object["data"]["journal"].as_str().map(str::to_owned)))
    }

    fn write_journal(&self, journal: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"journal": journal},
            "metadata": {"name": "kaas-upgrade", "namespace": "kube-system"},
        });
        let answer = self.ask_api(Method::PUT, JOURNAL, Some(&object))?;
        if answer.status == 404 {
            return written(&self.ask_api(Method::POST, CONFIG_MAPS, Some(&object))?);
        }
        written(&answer)
    }
}

/// The object of an answer, if there is one of this name.
fn found(answer: &Answer) -> anyhow::Result<Option<Value>> {
    match answer.status {
        200 => answer.json().map(Some),
        404 => Ok(None),
        _ => Err(unexpected(answer)),
    }
}

fn written(answer: &Answer) -> anyhow::Result<()> {
    match answer.status {
        200 | 201 => Ok(()),
        409 => bail!("somebody else has written it at the same time"),
        _ => Err(unexpected(answer)),
    }
}

fn asked(answer: &Answer) -> anyhow::Result<Asked> {
    match answer.status {
        200 => Ok(Asked::Done),
        202 => Ok(Asked::Begun),
        409 => Ok(Asked::Refused(answer.json()?)),
        _ => Err(unexpected(answer)),
    }
}

fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow::anyhow!("the answer is {}: {}", answer.status, answer.words())
}

fn named_address(node: &Value) -> anyhow::Result<(String, Ipv4Addr)> {
    let name = node["metadata"]["name"].as_str().context("a node without a name")?;
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
    let address = internal.find_map(|address| address["address"].as_str()?.parse().ok());
    Ok((name.to_owned(), address.with_context(|| format!("the node {name} has no IPv4 address"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn a_refusal_carries_code_and_reason() {
        let refused = asked(&answer(409, r#"{"code":"swap.quorum","reason":"cp2 is not healthy"}"#)).unwrap();
        let Asked::Refused(refused) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.to_string(), "cp2 is not healthy [swap.quorum]");
        assert_eq!(asked(&answer(202, "")).unwrap(), Asked::Begun);
        let error = asked(&answer(403, "this takes another client certificate\n")).unwrap_err().to_string();
        assert_eq!(error, "the answer is 403: this takes another client certificate");
    }

    #[test]
    fn a_nodes_address_is_its_internal_one() {
        let node = json!({"metadata": {"name": "cp1"}, "status": {"addresses": [
            {"type": "Hostname", "address": "cp1"}, {"type": "InternalIP", "address": "10.0.0.11"}]}});
        assert_eq!(named_address(&node).unwrap(), ("cp1".to_owned(), Ipv4Addr::new(10, 0, 0, 11)));
        assert!(named_address(&json!({"metadata": {"name": "cp1"}})).is_err());
    }
}
