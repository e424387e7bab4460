//! The configuration of a worker: its form, and the settings that it learned from its cluster at the join.

use std::net::Ipv4Addr;

use contract::properties::{ControlNode, Label, Taint};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::Node;

/// The label with a node's pool.
const POOL: &str = "kaas.local/pool";

/// The configuration of a worker. Code that only runs on workers takes it in place of [`super::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub cluster: JoinedCluster,
    pub node: Node,
    /// The node's data in Kubernetes at the join.
    pub registration: Registration,
    /// Factor of all waiting times of the appliance: 1 to 20.
    pub timeout_factor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedCluster {
    /// A DNS label.
    pub name: String,
    /// The virtual IP of its API.
    pub api_address: Ipv4Addr,
    /// The hash of its CA's public key: `sha256:` and 64 hexadecimal digits.
    #[serde(rename = "authority_hash")]
    pub ca_hash: String,
    /// The settings learned from the cluster. `None` until the worker has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "said")]
    pub learned: Option<LearnedCluster>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedCluster {
    pub network: ClusterNetwork,
    pub control_nodes: Vec<ControlNode>,
    /// The Kubernetes minor version that the worker has joined with, such as `1.36`. It never changes in this VM.
    pub kubernetes_minor: String,
}

/// The networks of a cluster, the same on each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNetwork {
    /// Addresses of pods. Each node gets a part of it.
    pub pod_cidr: Ipv4Net,
    /// Addresses of services. The first is the API's, the tenth is cluster DNS.
    pub service_cidr: Ipv4Net,
    /// UDP port of the VXLAN pod network.
    pub vxlan_port: u16,
}

/// The node's data in Kubernetes at the join. After that, they are in the Node object, where others may change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
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
    /// All labels, including the pool's.
    pub fn labels(&self) -> Vec<Label> {
        let pool = self.pool.iter().map(|pool| Label { key: POOL.to_owned(), value: pool.clone() });
        self.labels.iter().cloned().chain(pool).collect()
    }
}
