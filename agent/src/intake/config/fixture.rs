//! Configurations and an image for tests of all rooms.

use contract::image::ImageFacts;
use contract::role::Role;

use super::{AddOns, ClusterNetwork, Config, ControlPlane, JoinedCluster, LearnedCluster, Registration, Worker};

/// A three-node configuration of the first node.
pub(crate) fn three_nodes() -> ControlPlane {
    let config: Config = serde_json::from_value(serde_json::json!({
        "role": "control-plane",
        "cluster": {
            "name": "lab",
            "control_nodes": [
                {"name": "node1", "address": "10.0.0.11"},
                {"name": "node2", "address": "10.0.0.12"},
                {"name": "node3", "address": "10.0.0.13"},
            ],
            "virtual_address": "10.0.0.10",
            "pod_cidr": "10.244.0.0/16",
            "service_cidr": "10.96.0.0/16",
            "vxlan_port": 8472,
            "kubernetes_minor": "1.36",
            "pod_security": "baseline",
            "add_ons": AddOns::default(),
        },
        "node": {
            "name": "node1",
            "interfaces": [{"mac": null, "network": "net", "address": "10.0.0.11/24", "gateway": "10.0.0.1"}],
            "dns_servers": [],
            "search_domains": [],
            "ntp_servers": [],
            "ssh_authorized_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAMRuvzRF01LdOXikbVk9NHaLBNhwHeESbwCnTN+dPTR"],
            "console_password_hash": null,
            "proxy": null,
            "extra_ca_certificates": [],
            "registry_mirror": null,
            "snapshot_target": null,
            "snapshot_every": 360,
        },
        "timeout_factor": 1,
    }))
    .unwrap();
    config.control_plane().unwrap().clone()
}

/// The same cluster with only its first node.
pub(crate) fn one_node() -> ControlPlane {
    let mut config = three_nodes();
    config.cluster.control_nodes.truncate(1);
    config.cluster.virtual_address = None;
    config
}

/// The same configuration in a tenant cluster.
pub(crate) fn in_a_tenant(config: ControlPlane) -> ControlPlane {
    ControlPlane { role: Role::TenantControlPlane, ..config }
}

/// A worker that has not joined the cluster of [`three_nodes`].
pub(crate) fn worker() -> Worker {
    let ControlPlane { cluster, mut node, timeout_factor, .. } = three_nodes();
    node.name = "worker1".to_owned();
    node.interfaces[0].address = "10.0.0.21/24".parse::<ipnet::Ipv4Net>().unwrap().into();
    Worker {
        cluster: JoinedCluster {
            name: cluster.name.clone(),
            api_address: cluster.api_address(),
            ca_hash: format!("sha256:{}", "0".repeat(64)),
            learned: None,
        },
        node,
        registration: Registration { pool: Some("general".to_owned()), ..Registration::default() },
        timeout_factor,
    }
}

/// The same worker, after it has joined.
pub(crate) fn joined() -> Worker {
    let ControlPlane { cluster, .. } = three_nodes();
    let said = LearnedCluster {
        network: ClusterNetwork {
            pod_cidr: cluster.pod_cidr,
            service_cidr: cluster.service_cidr,
            vxlan_port: cluster.vxlan_port,
        },
        control_nodes: cluster.control_nodes,
        kubernetes_minor: "1.36".to_owned(),
    };
    let mut worker = worker();
    worker.cluster.learned = Some(said);
    worker
}

/// An image with two minor versions.
pub(crate) fn image() -> ImageFacts {
    serde_json::from_value(serde_json::json!({
        "name": "kaas-control-plane", "version": "0.1.0", "build": "0123456789abcdef0123456789abcdef",
        "role": "control-plane", "publisher": null,
        "kubernetes": [{"minor": "1.36", "version": "1.36.3"}, {"minor": "1.35", "version": "1.35.4"}],
        "etcd": "3.6.16", "coredns": "1.15.0", "pause": "1.0.0",
    }))
    .unwrap()
}
