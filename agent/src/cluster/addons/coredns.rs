//! Cluster DNS: CoreDNS with the addresses of the cluster.

use serde_json::Value;

use super::{dns_servers, manifest};
use crate::cluster::kubernetes::DOMAIN;
use crate::intake::config::ControlPlane;

/// The number of copies: one on one node, otherwise two, so that one node may fail.
fn replicas(config: &ControlPlane) -> u32 {
    if config.cluster.control_nodes.len() > 1 { 2 } else { 1 }
}

/// The part of the Corefile with the addresses of the DNS servers. It does not read `/etc/resolv.conf`: a node without servers has
/// 127.0.0.1 there, and the plugin `loop` would end CoreDNS. CoreDNS does not start with an empty list.
fn forward(config: &ControlPlane) -> String {
    match dns_servers(&config.node).join(" ").as_str() {
        "" => String::new(),
        servers => format!("\n    forward . {servers} {{\n        max_concurrent 1000\n    }}"),
    }
}

pub(super) fn objects(config: &ControlPlane) -> Vec<Value> {
    manifest::objects(
        include_str!("coredns.yaml"),
        [
            ("DOMAIN", DOMAIN.into()),
            ("FORWARD", forward(config).into()),
            ("ADDRESS", config.cluster.dns_address().to_string().into()),
            ("REPLICAS", replicas(config).into()),
        ],
    )
}
