//! The configuration of a worker: what a person decided, and what its cluster has said when it joined.

use std::net::Ipv4Addr;

use contract::properties::{ControlNode, Label, Taint};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::Node;

/// The label that names a node's pool.
const POOL: &str = "kaas.local/pool";

/// The configuration of a worker. What cannot run on another node takes it in place of [`super::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub cluster: JoinedCluster,
    pub node: Node,
    /// What Kubernetes is told of it when it joins.
    pub registration: Registration,
    /// How many times longer than usual the appliance waits for anything: 1 to 20.
    pub timeout_factor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedCluster {
    /// A DNS label.
    pub name: String,
    /// Where its API is: the virtual IP.
    pub api_address: Ipv4Addr,
    /// The hash of its authority's public key: `sha256:` and 64 hexadecimal digits.
    #[serde(rename = "authority_hash")]
    pub ca_hash: String,
    /// What it has said; none until the worker has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "said")]
    pub learned: Option<LearnedCluster>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedCluster {
    pub network: ClusterNetwork,
    pub control_nodes: Vec<ControlNode>,
    /// The Kubernetes minor that the worker has joined with, such as `1.36`: it stays for the life of the VM.
    pub kubernetes_minor: String,
}

/// The networks of a cluster, the same on each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNetwork {
    /// Addresses of pods; each node gets a /24 of it.
    pub pod_cidr: Ipv4Net,
    /// Addresses of services; the first is the API's, the tenth is cluster DNS.
    pub service_cidr: Ipv4Net,
    /// UDP port of the VXLAN pod network.
    pub vxlan_port: u16,
}

/// What Kubernetes is told of a node when it joins. It stands in the Node object then, where others may change it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The pool that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl ClusterNetwork {
    /// The address of cluster DNS: the tenth of the service CIDR.
    pub fn dns_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.service_cidr.network()) + 10)
    }
}

impl Registration {
    /// All labels, that of the pool included.
    pub fn labels(&self) -> Vec<Label> {
        let pool = self.pool.iter().map(|pool| Label { key: POOL.to_owned(), value: pool.clone() });
        self.labels.iter().cloned().chain(pool).collect()
    }
}
