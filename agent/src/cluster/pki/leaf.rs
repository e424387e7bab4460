//! The content of certificates of servers and clients. Knows nothing of how they are made or read.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::properties::ControlNode;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The common name: to the API server, the user's name.
    pub common_name: String,
    /// The organization: to the API server, a group of the user.
    pub group: Option<String>,
    pub names: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
    pub server: bool,
    pub client: bool,
}

impl Leaf {
    /// For etcd of `node` as a server. etcd also connects to itself with this certificate (its JSON gateway), so it has
    /// the client usage.
    pub fn etcd_server(node: &ControlNode) -> Self {
        Self {
            common_name: node.name.clone(),
            group: None,
            names: [node.name.clone(), "localhost".to_owned()].into(),
            addresses: [IpAddr::V4(node.address), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
                .into(),
            server: true,
            client: true,
        }
    }

    /// For etcd of `node` and the other members, in both directions.
    pub fn etcd_peer(node: &ControlNode) -> Self {
        Self::etcd_server(node)
    }

    pub fn etcd_healthcheck_client() -> Self {
        Self::client("kube-etcd-healthcheck-client")
    }

    pub fn apiserver_etcd_client() -> Self {
        Self::client("kube-apiserver-etcd-client")
    }

    /// For kube-proxy as a host service. The API server's built-in binding `system:node-proxier` names this user.
    pub fn kube_proxy() -> Self {
        Self::client("system:kube-proxy")
    }

    pub fn pod_network() -> Self {
        Self::client("system:kaas:pod-network")
    }

    /// For a client that is known by its name alone.
    pub fn client(name: &str) -> Self {
        Self {
            common_name: name.to_owned(),
            group: None,
            names: BTreeSet::new(),
            addresses: BTreeSet::new(),
            server: false,
            client: true,
        }
    }
}
