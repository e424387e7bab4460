//! The agent's client of the API server: its readiness, its nodes and other objects.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::ports;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ADMINISTRATOR, PROGRAMS, answer, pages};
use crate::cluster::pki::{Leaf, read_kubeconfig};
use crate::host::command::{Command, Runner};
use crate::host::files;
use crate::host::https::{Answer, Client};

/// The agent's client certificate: its own on a control-plane node, the kubelet's on a worker.
pub const KUBECONFIG: &str = "/etc/kubernetes/kaas-agent.conf";
/// The user that the agent's certificate names. It may read nodes.
pub const USER: &str = "system:kaas:agent";

pub fn leaf() -> Leaf {
    Leaf::client(USER)
}

/// The API server of one node.
pub struct Api {
    client: Client,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    pub name: String,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
}

impl Api {
    /// The API server at `address`, asked with the credentials in `kubeconfig`.
    pub fn new(address: Ipv4Addr, kubeconfig: &Path, timeout: Duration) -> anyhow::Result<Self> {
        let config = read_kubeconfig(kubeconfig)?;
        let server = SocketAddr::from((address, ports::API));
        let key = config.key.expose();
        let client = Client::new(server, &config.authority, &config.certificate, key, timeout)
            .with_context(|| format!("using {}", kubeconfig.display()))?;
        Ok(Self { client })
    }

    /// As [`Api::new`], with the node's administrator credentials below `root`: for what the agent's own may not do.
    pub fn as_administrator(address: Ipv4Addr, root: &Path, timeout: Duration) -> anyhow::Result<Self> {
        Self::new(address, &files::below(root, ADMINISTRATOR), timeout)
    }

    /// The body of the answer at a path.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        answer::body(self.client.get(path)?)
    }

    /// The object at a path.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        serde_json::from_slice(&self.get(path)?).context("understanding the API server's answer")
    }

    /// All objects of the list at a path.
    pub(super) fn list<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        pages::items(path, |path| pages::unless_too_long(self.get(path)))
    }

    /// Those of the objects at a path that are to be kept.
    pub(super) fn list_that<T: DeserializeOwned>(
        &self,
        path: &str,
        keep: impl Fn(&T) -> bool,
    ) -> anyhow::Result<Vec<T>> {
        pages::items_that(path, |path| pages::unless_too_long(self.get(path)), keep)
    }

    /// Gives the objects of a list one after the other, until `take` has enough.
    pub(super) fn each<T: DeserializeOwned>(
        &self,
        path: &str,
        take: impl FnMut(T) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        pages::each(path, |path| pages::unless_too_long(self.get(path)), take)
    }

    /// The object at a path, if there is one.
    pub(super) fn find<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        self.find_unless(&[404], path)
    }

    /// The object at a path. `None` if the answer has one of these codes.
    pub(super) fn find_unless<T: DeserializeOwned>(&self, codes: &[u16], path: &str) -> anyhow::Result<Option<T>> {
        let answer = self.client.get(path)?;
        if codes.contains(&answer.code) {
            return Ok(None);
        }
        serde_json::from_slice(&answer::body(answer)?).map(Some).context("understanding the API server's answer")
    }

    pub(super) fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<Answer> {
        self.client.post(path, body)
    }

    /// Deletes the object at a path, if it exists.
    pub(super) fn delete(&self, path: &str) -> anyhow::Result<()> {
        let answer = self.client.delete(path)?;
        if answer.code == 404 { Ok(()) } else { answer::body(answer).map(drop) }
    }

    pub(in crate::cluster) fn merge(&self, path: &str, change: &serde_json::Value) -> anyhow::Result<Answer> {
        self.client.merge(path, change)
    }

    /// Whether it says of itself that it serves.
    pub fn ready(&self) -> anyhow::Result<()> {
        let answer = self.client.get("/readyz")?;
        match answer.code {
            200 => Ok(()),
            // No user has rights before the API server's own roles are in the store.
            401 | 403 => bail!("the API server has started and has no access rights yet"),
            code => bail!("the API server answers {code}: {}", unready(&String::from_utf8_lossy(&answer.body))),
        }
    }

    /// Its version, such as `v1.36.3`.
    ///
    /// # Errors
    /// It does not answer, or not with a version.
    pub fn version(&self) -> anyhow::Result<String> {
        let version: serde_json::Value = self.read("/version").context("asking for the version")?;
        version["gitVersion"].as_str().map(str::to_owned).context("the API server answers with no version")
    }

    /// The node of a name, if the cluster has it.
    ///
    /// # Errors
    /// The API does not answer, or not with a node.
    pub fn node(&self, name: &str) -> anyhow::Result<Option<Node>> {
        let answer = self.client.get(&format!("/api/v1/nodes/{name}"))?;
        if answer.code == 404 {
            return Ok(None);
        }
        let item: Item = serde_json::from_slice(&answer::body(answer)?).context("understanding a node")?;
        Ok(Some(Node::from(item)))
    }

    /// The cluster's nodes, in name order.
    ///
    /// # Errors
    /// The API does not answer, or not with a list of nodes.
    pub fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        let items: Vec<Item> = self.list("/api/v1/nodes").context("listing the nodes")?;
        let mut nodes: Vec<Node> = items.into_iter().map(Node::from).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(nodes)
    }

    /// The same, or the node of this name alone if the API answers and its list cannot be read. Bad values in other Node objects
    /// do not matter for this one.
    ///
    /// # Errors
    /// The API does not answer, or not with that node.
    pub fn nodes_or(&self, own: &str) -> anyhow::Result<Vec<Node>> {
        match self.nodes() {
            Err(error) if !error.chain().any(|cause| cause.is::<reqwest::Error>()) => {
                log::warn!("{error:#}");
                Ok(self.node(own).context("asking for this node alone")?.into_iter().collect())
            }
            nodes => nodes,
        }
    }
}

/// The names that `/readyz` lists as not ready yet: its lines read `[+]name ok`
/// or `[-]name failed: …`.
fn unready(body: &str) -> String {
    let names: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .map(|line| line.split_whitespace().next().unwrap_or_default())
        .collect();
    if names.is_empty() { body.lines().next().unwrap_or_default().to_owned() } else { names.join(", ") }
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    status: String,
}

pub(super) fn is_ready(conditions: &[Condition]) -> bool {
    conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
}

impl From<Item> for Node {
    fn from(item: Item) -> Self {
        Self { name: item.metadata.name, ready: is_ready(&item.status.conditions) }
    }
}

/// The image's kubectl, asking the API server at `address` with the node's
/// administrator credentials.
pub fn kubectl(address: Ipv4Addr) -> Command {
    kubectl_with(ADMINISTRATOR, address)
}

fn kubectl_with(kubeconfig: &str, address: Ipv4Addr) -> Command {
    Command::new(format!("{PROGRAMS}/kubectl"))
        .arg(format!("--kubeconfig={kubeconfig}"))
        .arg(format!("--server=https://{address}:{}", ports::API))
}

/// Applies objects to the cluster through the API server at `address`, with
/// the node's administrator credentials. Says whether anything changed.
///
/// # Errors
/// kubectl's own; what it applied until then remains, and applying again
/// completes it.
pub fn apply(runner: &dyn Runner, address: Ipv4Addr, objects: &[serde_json::Value]) -> anyhow::Result<bool> {
    apply_with(ADMINISTRATOR, runner, address, objects)
}

/// Applies the kinds of objects that a file of the image has, and waits until the API server knows them.
///
/// # Errors
/// kubectl's own; applying again completes it.
pub fn apply_kinds(runner: &dyn Runner, address: Ipv4Addr, file: &str) -> anyhow::Result<()> {
    let file = format!("--filename={file}");
    runner.run(&kubectl(address).args(APPLY).arg(&file))?;
    runner.run(&kubectl(address).args(["wait", "--for=condition=Established", "--timeout=60s"]).arg(&file))?;
    Ok(())
}

/// How kubectl applies objects as the agent's.
const APPLY: [&str; 4] = ["apply", "--server-side", "--force-conflicts", "--field-manager=kaas-agent"];

/// As [`apply`], with the credentials in `kubeconfig`.
pub fn apply_with(
    kubeconfig: &str,
    runner: &dyn Runner,
    address: Ipv4Addr,
    objects: &[serde_json::Value],
) -> anyhow::Result<bool> {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let command = kubectl_with(kubeconfig, address).args(APPLY).arg("--filename=-").input(list.to_string());
    runner.run(&command)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_of_readyz_are_named() {
        let body = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: x\n";
        assert_eq!(unready(body), "etcd, poststarthook/rbac/bootstrap-roles");
        assert_eq!(unready("no\nmore"), "no");
    }

    #[test]
    fn a_node_without_conditions_is_not_ready() {
        let items: Vec<Item> = serde_json::from_str(
            r#"[
                {"metadata": {"name": "b"}},
                {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
                {"metadata": {"name": "c"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            ]"#,
        )
        .unwrap();
        let nodes: Vec<Node> = items.into_iter().map(Node::from).collect();
        assert_eq!(nodes.iter().map(|node| node.ready).collect::<Vec<_>>(), [false, true, false]);
    }
}
