//! etcd as a host service: its configuration, and a look at its health.
//!
//! All members start together as one static cluster, so that forming needs no
//! member to be added or promoted. Knows nothing of Kubernetes.

mod answers;
pub mod client;
pub mod command;
pub mod damage;
pub mod data_version;
#[cfg(test)]
pub(crate) mod fake;
pub mod guard;
mod log;
pub mod member;
pub mod quota;
pub mod replace;
pub mod restore;
pub mod snapshot;
pub mod target;
pub mod upkeep;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use contract::ports;
use contract::properties::ControlNode;

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/etcd.yaml";
/// Where etcd keeps its data: a directory of the data disk is mounted there.
pub const DATA: &str = "/var/lib/etcd";
/// The systemd unit.
pub const UNIT: &str = "etcd.service";

/// Is there from when systemd stops the member until it starts again. A member that stops hears no new request, waits up to
/// seven seconds for watches that do not end, and says all the while that it is well (`GracefulStop` in etcd's
/// server/embed/serve.go).
pub const STOPPING: &str = "/run/kaas/etcd-stopping";

/// Where the API server reaches this node's own member, and no other: one that is handed the other members as well
/// goes on sending them every third request for as long as the network drops them silently. kubeadm gives the API
/// server the same where it runs etcd itself (`getAPIServerCommand`, cmd/kubeadm/app/phases/controlplane). It is the
/// same text on each node: kubeadm keeps one configuration for all of them in the cluster.
pub const OWN: &str = "https://127.0.0.1:2379";

/// Where clients reach a node's member.
pub fn client_url(node: &ControlNode) -> String {
    format!("https://{}:{}", node.address, ports::ETCD_CLIENT)
}

/// Where members reach a node's member.
pub fn peer_url(node: &ControlNode) -> String {
    format!("https://{}:{}", node.address, ports::ETCD_PEER)
}

/// Whether etcd listens for its peers on a node.
pub fn listens(node: &ControlNode, timeout: Duration) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((node.address, ports::ETCD_PEER)), timeout).is_ok()
}
