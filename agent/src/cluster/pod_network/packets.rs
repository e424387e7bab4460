//! What happens to packets at the edge of the pod network: pods leave with the node's address, and packets of the
//! cluster's nodes and to them are marked as such. That follows the list of nodes, so the pod network keeps a table of its own; who is
//! let in, marked or not, is decided by [`crate::cluster::firewall`]. Without this table nobody passes for a node that the
//! configuration does not name.

use ipnet::Ipv4Net;

use super::desired::Desired;
use crate::host::nftables::{Table, set};

/// The bit of a packet's mark that says that it comes from a node of the cluster. kube-proxy and the CNI plugins have other
/// bits (0x2000, 0x4000, 0x8000).
pub const OF_A_NODE: u32 = 0x10_0000;

/// The bit of a packet's mark that says that this node sends it on to another node of the cluster.
pub const TO_A_NODE: u32 = 0x20_0000;

pub(in crate::cluster) const fn table() -> Table {
    Table::new("ip", "kaas_pods")
}

/// What the table holds.
///
/// Packets of pods to addresses that are no pod's leave with the node's address. Other nodes count as outside: they would
/// answer a pod's own address through the tunnel, on another way than the question came, and networks with anti-spoofing
/// drop packets of addresses that they have not given out. This node itself is not asked by way of this hook and sees the
/// pod's address. Multicast stays as it is: it has no conversation that could be turned back.
///
/// Nothing in a tunnel's packet proves who sent it (RFC 7348, section 7): all that can be asked is that the outer packet
/// says that it comes from a node, and comes the way that leads to that node.
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
