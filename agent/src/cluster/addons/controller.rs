//! The controller of tenant clusters, on the control-plane nodes of the control cluster: a pod on each, of which one leads by a
//! Lease. Its kinds, its rights and its policies are files of the image, which the controller's own program has printed.
//!
//! Each pod runs the program of its node's image. It uses its own node's API server, and depends on no virtual IP and no
//! unreachable node. It knows the build of the cluster's kinds, and the build of its node's image.

use std::net::Ipv4Addr;

use contract::image;
use contract::paths;
use contract::ports;
use serde_json::{Value, json};

use super::{dns_servers, manifest};
use crate::intake::config::Node;

pub(super) const IMAGE: &str = "controller";
/// The name of its objects, also of those in the image, such as its account.
pub const NAME: &str = "kaas-controller";
/// The namespace of that account.
pub const NAMESPACE: &str = "kaas-system";
/// Seconds, in which it ends its work and releases the Lease.
pub const GRACE: u32 = 45;

/// Its pods, with the DNS servers of `node`. `mark` is the build that the cluster's kinds are of. The controller reserves the
/// cluster's virtual IP. It is no argument: a pod may run the program of an earlier image, which knows no such argument.
pub(super) fn objects(mark: &str, node: &Node, virtual_address: Option<Ipv4Addr>) -> Vec<Value> {
    let mut objects = manifest::objects(
        include_str!("controller.yaml"),
        [
            ("NAME", NAME.into()),
            ("NAMESPACE", NAMESPACE.into()),
            ("BUILD", mark.into()),
            ("GRACE", GRACE.into()),
            ("HEALTH_PORT", ports::CONTROLLER_HEALTH.into()),
            ("API_PORT", ports::API.to_string().into()),
            ("IMAGE", image::PATH.into()),
            ("TENANTS", paths::TENANTS.into()),
        ],
    );
    let pod = &mut objects[0]["spec"]["template"]["spec"];
    if let (Some(address), Some(env)) = (virtual_address, pod["containers"][0]["env"].as_array_mut()) {
        env.push(json!({"name": "VIRTUAL_ADDRESS", "value": address}));
    }
    let servers = dns_servers(node);
    // Kubernetes requires a server with `None`.
    if !servers.is_empty() {
        pod["dnsPolicy"] = "None".into();
        pod["dnsConfig"] = json!({"nameservers": servers, "searches": node.search_domains});
    }
    objects
}
