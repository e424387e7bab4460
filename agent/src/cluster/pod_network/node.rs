//! What the pod network needs to know of a Kubernetes node, out of the much
//! more that the API server says.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use kube_rest::{ObjectMeta, Status};
use serde::Deserialize;

use crate::cluster::kubernetes::addresses::{self, Address};

/// A node, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its `InternalIP`, where the other nodes reach it.
    pub address: Ipv4Addr,
    /// The range that its pods get their addresses from.
    pub pod_cidr: Ipv4Net,
    /// When it came, as the API server writes it: in the order of time, as text.
    pub created: String,
}

/// All nodes that have an address and a pod CIDR, by name.
pub type Nodes = BTreeMap<String, Node>;

/// `GET /api/v1/nodes`.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub metadata: ListMetadata,
    pub items: Vec<Object>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    pub resource_version: String,
}

/// One line of `GET /api/v1/nodes?watch=1`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(super) enum Event {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// Nothing has changed up to this version.
    Bookmark(Bookmark),
    /// The watch cannot go on; 410 when its version is too old.
    Error(Status),
}

#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub metadata: ListMetadata,
}

/// A node as the API server writes it (Kubernetes API reference, `Node` v1).
#[derive(Debug, Deserialize)]
pub(super) struct Object {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    addresses: Vec<Address>,
}

impl Object {
    /// The node, once it has all that is needed.
    pub(super) fn node(&self) -> Option<Node> {
        let address = addresses::internal(&self.status.addresses).find_map(|address| address.parse().ok())?;
        let pod_cidr: Ipv4Net = self.spec.pod_cidr.as_ref()?.parse().ok()?;
        let created = self.metadata.creation_timestamp.clone();
        (pod_cidr.network() == pod_cidr.addr()).then_some(Node { address, pod_cidr, created })
    }
}

impl List {
    pub(super) fn nodes(&self) -> Nodes {
        self.items.iter().filter_map(|object| Some((object.metadata.name.clone(), object.node()?))).collect()
    }
}

/// Brings `nodes` up to date with an event about one of them. Says whether
/// anything that matters has changed: most events are heartbeats.
pub(super) fn apply(nodes: &mut Nodes, object: &Object, deleted: bool) -> bool {
    let name = &object.metadata.name;
    match object.node().filter(|_| !deleted) {
        Some(node) => nodes.insert(name.clone(), node.clone()) != Some(node),
        None => nodes.remove(name).is_some(),
    }
}
