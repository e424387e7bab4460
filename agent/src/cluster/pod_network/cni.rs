//! The CNI configuration of this node's pods: a bridge, addresses of the node's
//! own range, host ports.

use ipnet::Ipv4Net;
use serde_json::json;

use super::desired::BRIDGE;

/// Where containerd looks for it, relative to the root.
pub const PATH: &str = "etc/cni/net.d/10-kaas.conflist";

/// The file's content (CNI specification 1.0.0; options of the plugins
/// `bridge`, `host-local` and `portmap` as of their release 1.9).
pub fn conflist(pod_cidr: Ipv4Net, mtu: u32) -> String {
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "kaas",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isDefaultGateway": true,
                // A pod reaches itself through its service's address.
                "hairpinMode": true,
                // Done for all pods in one table, which spares pods and nodes.
                "ipMasq": false,
                "mtu": mtu,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": pod_cidr.to_string()}]]},
            },
            {
                "type": "portmap",
                "backend": "nftables",
                "capabilities": {"portMappings": true},
            },
        ],
    });
    format!("{list:#}\n")
}
