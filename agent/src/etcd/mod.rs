//! etcd as a host service: its configuration, and a look at its health.
//!
//! All members start together as one static cluster, so that forming needs no
//! member to be added or promoted. Knows nothing of Kubernetes.

pub mod command;
pub mod gateway;
mod log;
pub mod restore;
pub mod snapshot;
pub mod target;
pub mod upkeep;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::config::{Config, ControlNode};
use crate::https::Client;
use gateway::Gateway;

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/etcd.yaml";
/// Where etcd keeps its data: a folder of the data disk is mounted there.
pub const DATA: &str = "/var/lib/etcd";
/// The systemd unit.
pub const UNIT: &str = "etcd.service";

const PKI: &str = "/etc/kubernetes/pki";
/// Where members listen for each other.
pub const PEER_PORT: u16 = 2380;
/// Where members listen for clients.
pub const CLIENT_PORT: u16 = 2379;
const METRICS_PORT: u16 = 2381;
/// Above this size etcd refuses writes, in bytes. 8 GiB is the largest that upstream recommends.
const QUOTA: u64 = 4 << 30;

/// Where clients reach a node's member.
pub fn client_url(node: &ControlNode) -> String {
    format!("https://{}:{CLIENT_PORT}", node.address)
}

fn peer_url(node: &ControlNode) -> String {
    format!("https://{}:{PEER_PORT}", node.address)
}

/// The configuration of this node's member (`embed.Config` of etcd 3.6), as
/// JSON, which YAML includes. `None` if this node is not in the list.
pub fn configuration(config: &Config, cluster: Uuid) -> Option<Value> {
    let node = config.control_node()?;
    let members: Vec<String> =
        config.cluster.control_nodes.iter().map(|node| format!("{}={}", node.name, peer_url(node))).collect();
    let security = |certificate: &str| {
        json!({
            "cert-file": format!("{PKI}/etcd/{certificate}.crt"),
            "key-file": format!("{PKI}/etcd/{certificate}.key"),
            "client-cert-auth": true,
            "trusted-ca-file": format!("{PKI}/etcd/ca.crt"),
        })
    };
    // etcd refuses an election timeout above 50 s, and one below five heartbeats.
    let patience = config.patience;
    Some(json!({
        "name": node.name,
        "data-dir": DATA,
        "listen-client-urls": format!("https://127.0.0.1:{CLIENT_PORT},{}", client_url(node)),
        "advertise-client-urls": client_url(node),
        "listen-peer-urls": peer_url(node),
        "initial-advertise-peer-urls": peer_url(node),
        "listen-metrics-urls": format!("http://127.0.0.1:{METRICS_PORT}"),
        "initial-cluster": members.join(","),
        "initial-cluster-state": "new",
        "initial-cluster-token": cluster.to_string(),
        "heartbeat-interval": 100 * patience,
        "election-timeout": 1000 * patience,
        "quota-backend-bytes": QUOTA,
        "client-transport-security": security("server"),
        "peer-transport-security": security("peer"),
        "log-level": "warn",
        "logger": "zap",
        "feature-gates": "InitialCorruptCheck=true",
    }))
}

/// Whether this node's member has written a log of its own already.
pub fn has_data(root: &Path) -> bool {
    root.join(DATA.trim_start_matches('/')).join("member/wal").is_dir()
}

/// Removes what a member has left that was cut off before it took part, so that it
/// starts over. etcd must not be running. Says whether there was any.
///
/// # Errors
/// The data cannot be read or removed; it is then judged again the next time.
pub fn start_over_if_never_begun(root: &Path) -> io::Result<bool> {
    let data = root.join(DATA.trim_start_matches('/'));
    if !log::never_took_part(&data)? {
        return Ok(false);
    }
    fs::remove_dir_all(data.join("member"))?;
    Ok(true)
}

/// Whether this node's member sees a leader and answers a read that needs a quorum.
pub fn healthy(patience: Duration) -> bool {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
    Client::plain(server, patience).get("/health").is_ok_and(|answer| answer.code == 200)
}

/// Whether `node`'s member does, asked with the credentials of the agent in the
/// folder `pki`.
pub fn member_healthy(node: &ControlNode, pki: &Path, patience: Duration) -> bool {
    Gateway::new(node, pki, patience).is_ok_and(|member| member.healthy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::three_nodes;

    #[test]
    fn the_configuration_of_the_first_of_three_nodes() {
        insta::assert_snapshot!(format!("{:#}", configuration(&three_nodes(), Uuid::from_u128(7)).unwrap()));
    }

    #[test]
    fn a_node_outside_of_the_list_has_no_member() {
        let mut config = three_nodes();
        config.node.name = "other".into();
        assert_eq!(configuration(&config, Uuid::nil()), None);
    }

    #[test]
    fn timeouts_stay_within_what_etcd_accepts() {
        let mut config = three_nodes();
        config.patience = 20;
        let settings = configuration(&config, Uuid::nil()).unwrap();
        let (heartbeat, election) = (&settings["heartbeat-interval"], &settings["election-timeout"]);
        assert!(election.as_u64().unwrap() <= 50_000 && election.as_u64().unwrap() >= 5 * heartbeat.as_u64().unwrap());
    }
}
