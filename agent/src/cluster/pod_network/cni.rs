//! The CNI configuration of this node's pods: a device and a route for each pod, addresses of the node's own range,
//! host ports.

use std::fs;
use std::path::Path;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// The file that containerd reads, relative to the root.
pub const PATH: &str = "etc/cni/net.d/10-kaas.conflist";

/// The directory in which host-local records the pods' addresses. Neither pods nor these records survive a reboot.
const LEASES: &str = "/run/kaas/cni";

/// The file's content (CNI specification 1.0.0; options of the plugins `ptp`, `host-local` and `portmap` as of their
/// release 1.9).
pub fn conflist(pod_cidr: Ipv4Net, mtu: u32) -> String {
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "kaas",
        "plugins": [
            {
                "type": "ptp",
                // One table does it for all pods, and excludes pods and nodes.
                "ipMasq": false,
                "mtu": mtu,
                "ipam": {
                    "type": "host-local",
                    "dataDir": LEASES,
                    "ranges": [[{"subnet": pod_cidr.to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
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

/// The range for addresses of new pods of the node below `root`. `None` before the pod network has come up.
pub fn range(root: &Path) -> Option<Ipv4Net> {
    let list: Value = serde_json::from_slice(&fs::read(root.join(PATH)).ok()?).ok()?;
    list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"].as_str()?.parse().ok()
}
