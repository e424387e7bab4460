//! What happens to packets at the edge of the pod network: pods leave with the node's address, and the tunnel and the
//! kubelet take packets of the cluster's nodes alone. It follows the list of nodes, so the pod network keeps a table of its
//! own; what is let in at all is decided by [`crate::cluster::firewall`].

use contract::ports::Caller;
use ipnet::Ipv4Net;

use super::desired::{BRIDGE, DEVICE, Desired};
use crate::cluster::firewall::{set, tcp};
use crate::host::nftables::Table;

/// The table.
pub(super) const fn table() -> Table {
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
/// says that it comes from a node.
pub(super) fn content(pod_cidr: Ipv4Net, desired: &Desired) -> String {
    let nodes: Vec<_> = desired.remotes.values().map(|remote| remote.address).collect();
    let from_others = if nodes.is_empty() { String::new() } else { format!(" ip saddr != {}", set(&nodes)) };
    format!(
        "\tchain input {{\n\
         \t\ttype filter hook input priority filter - 10; policy accept;\n\
         \t\tiifname \"lo\" accept\n\
         \t\tudp dport {tunnel}{from_others} drop\n\
         \t\tiifname != {{ {BRIDGE}, {DEVICE} }} tcp dport {kubelet}{from_others} drop\n\
         \t}}\n\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\tip saddr {pod_cidr} ip daddr != {pod_cidr} ip daddr != 224.0.0.0/4 masquerade\n\
         \t}}\n",
        tunnel = desired.vxlan.port,
        kubelet = set(&tcp(Caller::Nodes)),
    )
}
