//! The part of a Kubernetes node that the pod network needs. The API server's objects have much more.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::cluster::kubernetes::addresses::{self, Address};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its `InternalIP`, at which the other nodes reach it.
    pub address: Ipv4Addr,
    /// The range for addresses of its pods.
    pub pod_cidr: Ipv4Net,
    /// Its creation time, as the API server writes it. The order of the texts is the order in time.
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
    /// The watch cannot continue. The code is 410 if its version is too old.
    Error(Status),
}

#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub metadata: ListMetadata,
}

#[derive(Debug, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub code: u16,
    #[serde(default)]
    pub message: String,
}

/// A node as the API server writes it (Kubernetes API reference, `Node` v1).
#[derive(Debug, Deserialize)]
pub(super) struct Object {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub name: String,
    #[serde(default)]
    pub resource_version: String,
    #[serde(default)]
    creation_timestamp: String,
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

/// Applies an event about one node to `nodes`. Returns whether anything that matters has changed: most events are
/// heartbeats.
pub(super) fn apply(nodes: &mut Nodes, object: &Object, deleted: bool) -> bool {
    let name = &object.metadata.name;
    match object.node().filter(|_| !deleted) {
        Some(node) => nodes.insert(name.clone(), node.clone()) != Some(node),
        None => nodes.remove(name).is_some(),
    }
}
