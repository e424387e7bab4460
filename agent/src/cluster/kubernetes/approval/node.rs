//! The fields of a Node object that decide about names and addresses. A node writes its own addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::cluster::kubernetes::addresses::{self, Address};
use crate::cluster::kubernetes::api::{Condition, is_ready};
use crate::intake::config::ControlPlane;

/// Names by which clients on a node or in a pod reach what is no node's.
const NAMES: [&str; 2] = ["kubernetes", "localhost"];

#[derive(Deserialize)]
pub(super) struct Node {
    metadata: Metadata,
    #[serde(default)]
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
    /// Such as `2026-01-31T12:00:00Z`: in the order of time, as text.
    #[serde(default)]
    creation_timestamp: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "podCIDR")]
    pod_cidr: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Differs from those of earlier and later objects of its name.
    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub fn is_control(&self, config: &ControlPlane) -> bool {
        config.cluster.control_nodes.iter().any(|node| node.name == self.metadata.name)
    }

    /// Whether its kubelet says that it is ready, and said so lately.
    pub fn is_ready(&self) -> bool {
        is_ready(&self.status.conditions)
    }

    /// Its only address, if it has exactly one, in the four numbers of IPv4.
    pub fn only_address(&self) -> Option<Ipv4Addr> {
        let mut internal = addresses::internal(&self.status.addresses);
        let first = internal.next()?.parse().ok();
        first.filter(|_| internal.next().is_none())
    }

    /// The address that counts against others.
    pub fn address(&self) -> Option<IpAddr> {
        addresses::counting(&self.status.addresses)
    }

    /// Whether another node came later.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.metadata.creation_timestamp < other.metadata.creation_timestamp
    }
}

/// The nodes with a pod range that the cluster has not given them, each with the reason. A range has this prefix length
/// (`--node-cidr-mask-size`). If two nodes have one range, it is the older one's.
pub(super) fn strange_ranges(nodes: &[Node], pods: Ipv4Net, prefix: u8) -> Vec<String> {
    let mut in_order: Vec<&Node> = nodes.iter().filter(|node| !node.spec.pod_cidr.is_empty()).collect();
    in_order.sort_by(|one, other| one.metadata.creation_timestamp.cmp(&other.metadata.creation_timestamp));
    let mut given = BTreeSet::new();
    let mut why = |node: &Node| match node.spec.pod_cidr.parse::<Ipv4Net>() {
        Ok(range) if !pods.contains(&range) => Some(format!("{range} is outside of {pods}")),
        Ok(range) if range.prefix_len() != prefix => Some(format!("{range} is no /{prefix}")),
        Ok(range) if !given.insert(range.network()) => Some(format!("{range} is another node's")),
        Ok(_) => None,
        Err(_) => Some("it is no range of IPv4".to_owned()),
    };
    in_order.iter().filter_map(|node| Some(format!("{}: {}", node.name(), why(node)?))).collect()
}

/// Why no worker may have a name, if that is so.
pub(super) fn reserved_name(name: &str, config: &ControlPlane) -> Option<&'static str> {
    if contract::properties::parse::names::label(name).is_err() {
        return Some("which is no node's name");
    }
    if config.cluster.control_nodes.iter().any(|node| node.name == name) {
        return Some("which is a control-plane node's");
    }
    NAMES.contains(&name).then_some("by which others are reached")
}

/// The owner of an address that no worker may have. Workers may be in any subnet, and control-plane nodes do not know which. So
/// only addresses with another known use are refused.
pub(super) fn reserved_address(address: Ipv4Addr, config: &ControlPlane) -> Option<&'static str> {
    let ControlPlane { cluster, node, .. } = config;
    let [first, ..] = address.octets();
    let no_hosts = first == 0 || first >= 224 || address.is_loopback() || address.is_link_local();
    let networks = || node.interfaces.iter().filter_map(|interface| interface.address.known());
    let ends = |network: Ipv4Net| {
        network.prefix_len() < 31 && (network.network() == address || network.broadcast() == address)
    };
    let mut gateways =
        node.interfaces.iter().filter_map(|one| one.gateway).chain(node.routes.iter().map(|one| one.gateway));
    let mut servers = node.ntp_servers.iter().filter_map(|server| server.parse().ok());
    let of_control_nodes = cluster.control_nodes.iter().any(|one| one.address == address)
        || networks().any(|network| network.addr() == address);
    [
        (of_control_nodes, "which is a control-plane node's"),
        (cluster.virtual_address == Some(address), "which is the virtual IP"),
        (cluster.service_cidr.contains(&address), "which is a service's"),
        (cluster.pod_cidr.contains(&address), "which is a pod's"),
        (cluster.add_ons.service_addresses.iter().any(|range| range.contains(address)), "which is for services"),
        (gateways.any(|gateway| gateway == address), "which is a gateway's"),
        (node.dns_servers.contains(&address), "which is a DNS server's"),
        (servers.any(|server: Ipv4Addr| server == address), "which is a time server's"),
        (no_hosts || networks().any(ends), "which is no host's"),
    ]
    .into_iter()
    .find_map(|(is_so, whose)| is_so.then_some(whose))
}
