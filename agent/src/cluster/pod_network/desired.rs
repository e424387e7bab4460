//! The desired state of the kernel for the pod network. It follows from the nodes alone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::node::Nodes;

/// The VXLAN device. Everything on it is ours.
pub const DEVICE: &str = "kaas.vxlan";

/// The devices of a node's pods, one each, as a pattern for nft(8). The names come from the CNI plugin `ptp`
/// (`ip.RandomVethName`).
pub const PODS: &str = "veth*";

/// The VXLAN network identifier (RFC 7348 §5), the same for all clusters: their addresses differ.
pub const VNI: u32 = 1;

/// The bytes that VXLAN adds to a packet: Ethernet, IPv4, UDP and VXLAN headers.
pub const OVERHEAD: u32 = 14 + 20 + 8 + 8;

/// The settings of a node. They do not change while this runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub node: String,
    /// This node's address, at which its tunnels start.
    pub address: Ipv4Addr,
    /// The addresses of all pods.
    pub pod_cidr: Ipv4Net,
    /// The UDP port of VXLAN.
    pub port: u16,
}

/// The network device that holds this node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    pub device: String,
    /// Its MTU, in bytes.
    pub mtu: u32,
}

/// The settings of a VXLAN device that can change only if the device is created again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vxlan {
    pub vni: u32,
    pub port: u16,
    /// The source address of its packets.
    pub local: Ipv4Addr,
    pub underlay: String,
    /// Whether it learns addresses from received packets. It must not.
    pub learning: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub vxlan: Vxlan,
    /// The device's MAC address, lower-case with colons.
    pub mac: String,
    /// The device's MTU, and that of pods, in bytes.
    pub mtu: u32,
    /// This node's pod CIDR. Its first address is the device's own. Therefore the node's packets to remote pods come
    /// from an address that is routed back the same way.
    pub pod_cidr: Ipv4Net,
    /// The other nodes, by their pod CIDR.
    pub remotes: BTreeMap<Ipv4Net, Remote>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The end of its tunnel.
    pub address: Ipv4Addr,
    /// Its device's MAC address.
    pub mac: String,
}

/// A locally administered MAC address (IEEE 802 §8.4) from a node's address, so that no node has to ask another one for
/// it.
pub fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:6b:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The desired state, once this node has its pod CIDR. The warnings name nodes that are left out. If two nodes
/// contradict each other, it is the one that came later: a new node may choose its pod CIDR.
pub fn desired(settings: &Settings, underlay: &Underlay, nodes: &Nodes) -> (Option<Desired>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut remotes: BTreeMap<Ipv4Net, Remote> = BTreeMap::new();
    let own = nodes.get(&settings.node).map(|node| node.pod_cidr);
    let mut in_order: Vec<_> = nodes.iter().collect();
    in_order.sort_by_key(|(_, node)| &node.created);
    for (name, node) in in_order {
        let range = node.pod_cidr;
        let overlaps = |other: &Ipv4Net| other.contains(&range) || range.contains(other);
        if !settings.pod_cidr.contains(&range) {
            warnings.push(format!("{name}'s pod CIDR {range} is outside of the cluster's {}", settings.pod_cidr));
        } else if *name == settings.node {
            // Ours: nothing to reach.
        } else if node.address == settings.address {
            warnings.push(format!("{name} has this node's address {}", node.address));
        } else if own.iter().chain(remotes.keys()).any(overlaps) {
            warnings.push(format!("{name}'s pod CIDR {range} overlaps another node's"));
        } else {
            remotes.insert(range, Remote { address: node.address, mac: mac(node.address) });
        }
    }
    let own = own.filter(|range| settings.pod_cidr.contains(range));
    let desired = own.map(|pod_cidr| Desired {
        vxlan: Vxlan {
            vni: VNI,
            port: settings.port,
            local: settings.address,
            underlay: underlay.device.clone(),
            learning: false,
        },
        mac: mac(settings.address),
        mtu: underlay.mtu.saturating_sub(OVERHEAD),
        pod_cidr,
        remotes,
    });
    (desired, warnings)
}
