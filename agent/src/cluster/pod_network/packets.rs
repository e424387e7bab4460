//! The rules for packets at the edge of the pod network. Pods' packets leave with the node's address, and packets from
//! and to the cluster's nodes are marked. The marks follow the list of nodes, so the pod network keeps a separate
//! table. [`crate::cluster::firewall`] decides which packets are accepted, by their marks. Without this table, only the
//! nodes that the configuration names count as nodes.

use ipnet::Ipv4Net;

use super::desired::Desired;
use crate::host::nftables::{Table, set};

/// The bit of a packet's mark that means: the packet comes from a node of the cluster. The bits of kube-proxy and the
/// CNI plugins are others (0x2000, 0x4000, 0x8000).
pub const OF_A_NODE: u32 = 0x10_0000;

/// The bit of a packet's mark that means: this node forwards the packet to another node of the cluster.
pub const TO_A_NODE: u32 = 0x20_0000;

pub(in crate::cluster) const fn table() -> Table {
    Table::new("ip", "kaas_pods")
}

/// Packets of pods to addresses that are no pod's leave with the node's address. Other nodes count as outside. They
/// would answer a pod's own address through the tunnel, on another route than the request. Networks with anti-spoofing
/// drop packets of addresses that they have not assigned. Packets to this node itself do not pass this hook, so it sees
/// the pod's address. Multicast is not changed: it has no connection to translate back.
///
/// Nothing in a tunnel's packet proves its sender (RFC 7348, section 7). The only possible check is that the outer
/// packet has the address of a node, and comes in on the route to that node.
pub(in crate::cluster) fn content(pod_cidr: Ipv4Net, desired: &Desired) -> String {
    let nodes: Vec<_> = desired.remotes.values().map(|remote| remote.address).collect();
    let (known, there) = match nodes.as_slice() {
        [] => (String::new(), String::new()),
        nodes => (
            format!(
                "\t\tip saddr {} fib saddr . iif oif exists meta mark set meta mark | {OF_A_NODE:#x}\n",
                set(nodes)
            ),
            format!("\t\tip daddr {} meta mark set meta mark | {TO_A_NODE:#x}\n", set(nodes)),
        ),
    };
    format!(
        "\tchain input {{\n\
         \t\ttype filter hook input priority filter - 10; policy accept;\n\
         {known}\
         \t}}\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority filter - 10; policy accept;\n\
{there}\
         \t}}\n\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\tip saddr {pod_cidr} ip daddr != {pod_cidr} ip daddr != 224.0.0.0/4 masquerade\n\
         \t}}\n"
    )
}
