//! etcd as a host service. All members start together as one static cluster, so that forming needs no member to be
//! added or promoted.

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

/// The file of the configuration. It is written at each boot.
pub const CONFIGURATION: &str = "/run/kaas/etcd.yaml";
/// The directory of etcd's data. A directory of the data disk is mounted there.
pub const DATA: &str = "/var/lib/etcd";
pub const UNIT: &str = "etcd.service";

/// Exists from the stop of the member by systemd until its next start. A member that stops accepts no new request, and
/// waits up to seven seconds for watches that do not end. Meanwhile it still reports that it is healthy (`GracefulStop`
/// in etcd's server/embed/serve.go).
pub const STOPPING: &str = "/run/kaas/etcd-stopping";

/// The URL of this node's own member, the only one for the API server. With other members as well, the API server would
/// send them every third request for as long as the network drops them silently. If kubeadm runs etcd itself, it sets
/// the same URL (`getAPIServerCommand`, cmd/kubeadm/app/phases/controlplane). It is the same text on each node: kubeadm
/// keeps one configuration for all nodes in the cluster.
pub const OWN: &str = "https://127.0.0.1:2379";

/// The URL of a node's member for clients.
pub fn client_url(node: &ControlNode) -> String {
    format!("https://{}:{}", node.address, ports::ETCD_CLIENT)
}

pub fn peer_url(node: &ControlNode) -> String {
    format!("https://{}:{}", node.address, ports::ETCD_PEER)
}

/// Whether etcd listens for its peers on a node.
pub fn listens(node: &ControlNode, timeout: Duration) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((node.address, ports::ETCD_PEER)), timeout).is_ok()
}
