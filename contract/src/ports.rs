//! The table of a node's ports. The code that listens and connects uses its numbers. The firewall and the documentation are
//! made from it.

use std::fmt::Write;
use std::ops::RangeInclusive;

/// SSH, Debian's default.
pub const SSH: u16 = 22;

/// etcd, for its clients.
pub const ETCD_CLIENT: u16 = 2379;

/// etcd, for its other members.
pub const ETCD_PEER: u16 = 2380;

/// etcd's health and metrics, on loopback.
pub const ETCD_METRICS: u16 = 2381;

/// The Kubernetes API, on each control-plane node and on the virtual IP.
pub const API: u16 = 6443;

/// The pod network, unless the property sets another port.
pub const VXLAN: u16 = 8472;

/// The node's endpoint: status, metrics, swaps.
pub const NODE: u16 = 9441;

/// The health check of the controller of tenant clusters, on loopback.
pub const CONTROLLER_HEALTH: u16 = 9442;

/// The rendezvous of the control-plane nodes.
pub const RENDEZVOUS: u16 = 9443;

/// The kubelet's health, on loopback.
pub const KUBELET_HEALTH: u16 = 10248;

/// kube-proxy's metrics, on loopback.
pub const PROXY_METRICS: u16 = 10249;

/// The kubelet.
pub const KUBELET: u16 = 10250;

/// The speakers of service addresses (MetalLB) watch each other at memberlist's port.
pub const MEMBERLIST: u16 = 7946;

/// A speaker's metrics and health, on loopback.
pub const SPEAKER_METRICS: u16 = 7472;

/// kube-proxy's health, on loopback.
pub const PROXY_HEALTH: u16 = 10256;

/// The controller manager, on loopback: kubeadm's default.
const CONTROLLER_MANAGER: u16 = 10257;

/// The scheduler, on loopback: kubeadm's default.
const SCHEDULER: u16 = 10259;

/// The ports that Kubernetes gives services of the type `NodePort` (default of `--service-node-port-range` of the API server),
/// and health checks of load balancers.
pub const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// VRRP: the IP protocol 112 (RFC 5798, section 5.1.1.4), which has no ports.
    Vrrp,
}

/// The sources whose packets a port admits. The firewall is made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// All that reach the node.
    Everybody,
    /// The networks of `admin-cidrs`, or all without that property.
    Administrators,
    /// The same, and the cluster's nodes and pods.
    AdministratorsAndNodes,
    /// All nodes of the cluster.
    Nodes,
    /// All nodes of the cluster, and its pods.
    NodesAndPods,
    /// The control-plane nodes, without their pods.
    ControlNodes,
    /// The node itself, only on loopback.
    Loopback,
}

impl Caller {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Everybody,
        Self::Administrators,
        Self::AdministratorsAndNodes,
        Self::NodesAndPods,
        Self::Nodes,
        Self::ControlNodes,
        Self::Loopback,
    ];

    /// The admitted sources, in words.
    fn words(self) -> &'static str {
        match self {
            Self::Everybody => "everybody",
            Self::Administrators => "everybody, or `admin-cidrs`",
            Self::AdministratorsAndNodes => "everybody, or `admin-cidrs`, nodes and pods",
            Self::Nodes => "nodes",
            Self::NodesAndPods => "nodes, pods",
            Self::ControlNodes => "control-plane nodes",
            Self::Loopback => "the node itself",
        }
    }
}

/// A port of a node.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Whether workers have it as well as control-plane nodes.
    pub on_workers: bool,
    /// Its number. `None` if the protocol has no ports.
    pub number: Option<u16>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The admitted sources.
    pub caller: Caller,
    /// The clients, in words.
    pub from: &'static str,
    /// The purpose, and when the port is open.
    pub why: &'static str,
}

const fn tcp(number: u16, caller: Caller, from: &'static str, why: &'static str) -> Port {
    Port { on_workers: false, number: Some(number), protocol: Protocol::Tcp, caller, from, why }
}

const fn on_all(port: Port) -> Port {
    Port { on_workers: true, ..port }
}

const MEMBERLIST_PURPOSE: &str =
    "workers of a tenant with `service-vips`: which of them are present (MetalLB's memberlist, encrypted)";
const PEERS: &str = "control-plane nodes";
const LOOPBACK: &str = "the node itself, on loopback";

/// All ports of a node, those on loopback last.
pub const TABLE: &[Port] = &[
    on_all(tcp(
        SSH,
        Caller::Administrators,
        "administrators",
        "SSH as `admin` with a key; closed without `ssh-authorized-keys`",
    )),
    tcp(
        API,
        Caller::Everybody,
        "Kubernetes clients, control-plane nodes, pods",
        "the Kubernetes API, on each node and on the virtual IP",
    ),
    tcp(
        NODE,
        Caller::AdministratorsAndNodes,
        "load balancers, monitoring, administrators, deployers, control-plane nodes",
        "the node's endpoint: status, metrics, snapshots, upgrades, deployers' credentials; control-plane nodes ask \
         it about data disks",
    ),
    tcp(
        ETCD_CLIENT,
        Caller::ControlNodes,
        PEERS,
        "etcd for API servers and agents, with client certificates of etcd's CA",
    ),
    tcp(ETCD_PEER, Caller::ControlNodes, PEERS, "etcd's members among themselves, with certificates of etcd's CA"),
    tcp(
        RENDEZVOUS,
        Caller::ControlNodes,
        PEERS,
        "the rendezvous; open while the cluster forms or a lost node is replaced",
    ),
    on_all(tcp(
        KUBELET,
        Caller::NodesAndPods,
        "API servers, nodes, pods",
        "the kubelet: logs, exec, metrics; the Kubernetes API authorizes each request",
    )),
    Port {
        on_workers: true,
        number: Some(VXLAN),
        protocol: Protocol::Udp,
        caller: Caller::Nodes,
        from: "nodes",
        why: "the pod network (VXLAN, not encrypted); `vxlan-port` changes it",
    },
    on_all(tcp(MEMBERLIST, Caller::Nodes, "nodes", MEMBERLIST_PURPOSE)),
    Port {
        on_workers: true,
        number: Some(MEMBERLIST),
        protocol: Protocol::Udp,
        caller: Caller::Nodes,
        from: "nodes",
        why: MEMBERLIST_PURPOSE,
    },
    Port {
        on_workers: false,
        number: None,
        protocol: Protocol::Vrrp,
        caller: Caller::ControlNodes,
        from: PEERS,
        why: "who holds the virtual IP (unicast VRRP version 3)",
    },
    tcp(ETCD_METRICS, Caller::Loopback, LOOPBACK, "etcd's health and metrics"),
    on_all(tcp(KUBELET_HEALTH, Caller::Loopback, LOOPBACK, "the kubelet's health")),
    on_all(tcp(SPEAKER_METRICS, Caller::Loopback, LOOPBACK, "the speaker of service addresses, on workers")),
    on_all(tcp(PROXY_METRICS, Caller::Loopback, LOOPBACK, "kube-proxy's metrics")),
    on_all(tcp(PROXY_HEALTH, Caller::Loopback, LOOPBACK, "kube-proxy's health")),
    tcp(CONTROLLER_HEALTH, Caller::Loopback, LOOPBACK, "the health of the controller of tenant clusters"),
    tcp(CONTROLLER_MANAGER, Caller::Loopback, LOOPBACK, "the controller manager"),
    tcp(SCHEDULER, Caller::Loopback, LOOPBACK, "the scheduler"),
];

/// The table for the documentation.
pub fn markdown() -> String {
    let mut text =
        String::from("| Port | On | Admitted | Who connects | What for |\n| --- | --- | --- | --- | --- |\n");
    for port in TABLE {
        let protocol = match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Vrrp => "IP protocol 112",
        };
        let number = port.number.map(|number| format!("{number}/")).unwrap_or_default();
        let on = if port.on_workers { "all nodes" } else { "control-plane nodes" };
        let _ =
            writeln!(text, "| {number}{protocol} | {on} | {} | {} | {} |", port.caller.words(), port.from, port.why);
    }
    let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
    let _ = writeln!(
        text,
        "| {first} to {last} | all nodes | {} | clients of services, load balancers | services of the type `NodePort`, and the health \
         checks of those of the type `LoadBalancer` |",
        Caller::Everybody.words()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties;
    use std::collections::BTreeSet;

    #[test]
    fn port_numbers_of_a_protocol_are_unique() {
        let numbers: BTreeSet<_> = TABLE.iter().map(|port| (port.number, port.protocol == Protocol::Tcp)).collect();
        assert_eq!(numbers.len(), TABLE.len());
    }

    #[test]
    fn the_pod_network_has_the_property_s_default() {
        let default = properties::table()
            .iter()
            .find(|property| property.key == properties::VXLAN_PORT)
            .unwrap()
            .default(crate::role::Role::ControlPlane);
        assert_eq!(default, Some(VXLAN.to_string().as_str()));
    }

    #[test]
    fn the_documentation_names_number_protocol_and_caller() {
        let text = markdown();
        assert!(text.contains("| 8472/UDP | all nodes | nodes | nodes | the pod network"), "{text}");
        assert!(
            text.contains("| IP protocol 112 | control-plane nodes | control-plane nodes | control-plane nodes |"),
            "{text}"
        );
        assert!(text.contains("| 22/TCP | all nodes | everybody, or `admin-cidrs` |"), "{text}");
        assert!(text.contains("| 30000 to 32767 | all nodes | everybody |"), "{text}");
        assert_eq!(text.lines().count(), TABLE.len() + 3);
    }
}
