//! This node's member: its configuration, its data on the disk, and its health.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use contract::ports;
use contract::properties::ControlNode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::client::{EtcdClient, HEALTH, Member};
use super::restore::RestoreRecord;
use super::{DATA, STOPPING, client_url, log, peer_url, replace};
use crate::cluster::kubernetes::CIPHER_SUITES;
use crate::host::files;
use crate::host::https::{Answer, Client};
use crate::intake::config::ControlPlane;

const PKI: &str = "/etc/kubernetes/pki";

/// After this many writes etcd discards the log before them. The default of 10,000, each of up to 1.5 MiB
/// (`--max-request-bytes`), would fill a small disk even if the database does not grow.
pub(super) const LOG: u64 = 1000;

/// How a member enters its cluster. etcd ignores these settings once the member has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialCluster {
    token: String,
    /// Each is `name=URL`.
    members: Vec<String>,
    existing: bool,
}

impl InitialCluster {
    /// For a new cluster: all listed nodes start together.
    pub fn of_forming(config: &ControlPlane, cluster: Uuid) -> Self {
        Self::with(config.cluster.control_nodes.iter(), cluster.to_string())
    }

    pub fn of_restored(config: &ControlPlane, restored: &RestoreRecord) -> Self {
        let nodes = config.cluster.control_nodes.iter();
        Self::with(nodes.filter(|node| restored.members.contains(&node.name)), restored.token.clone())
    }

    /// For a node that joins members that have added it. `None` if they have not.
    pub fn of_joining(config: &ControlPlane, cluster: Uuid, members: &[Member]) -> Option<Self> {
        let own = config.control_node().ok()?;
        if !members.iter().any(|member| replace::is_member_of(member, own)) {
            return None;
        }
        let nodes = &config.cluster.control_nodes;
        let joined = nodes.iter().filter(|node| members.iter().any(|member| replace::is_member_of(member, node)));
        Some(Self { existing: true, ..Self::with(joined, cluster.to_string()) })
    }

    fn with<'a>(nodes: impl Iterator<Item = &'a ControlNode>, token: String) -> Self {
        let members = nodes.map(|node| format!("{}={}", node.name, peer_url(node))).collect();
        Self { token, members, existing: false }
    }
}

/// The configuration of this node's member (`embed.Config` of etcd 3.6), as JSON, which is also YAML. `quota` is in
/// bytes. `None` if this node is not in the list.
pub fn configuration(config: &ControlPlane, beginning: &InitialCluster, quota: u64) -> Option<Value> {
    let node = config.control_node().ok()?;
    let security = |certificate: &str| {
        json!({
            "cert-file": format!("{PKI}/etcd/{certificate}.crt"),
            "key-file": format!("{PKI}/etcd/{certificate}.key"),
            "client-cert-auth": true,
            "trusted-ca-file": format!("{PKI}/etcd/ca.crt"),
        })
    };
    // etcd refuses an election timeout above 50 s, and one below five heartbeats.
    let timeout = config.timeout_factor;
    Some(json!({
        "name": node.name,
        "data-dir": DATA,
        "listen-client-urls": format!("https://127.0.0.1:{},{}", ports::ETCD_CLIENT, client_url(node)),
        "advertise-client-urls": client_url(node),
        "listen-peer-urls": peer_url(node),
        "initial-advertise-peer-urls": peer_url(node),
        "listen-metrics-urls": format!("http://127.0.0.1:{}", ports::ETCD_METRICS),
        "initial-cluster": beginning.members.join(","),
        "initial-cluster-state": if beginning.existing { "existing" } else { "new" },
        "initial-cluster-token": beginning.token,
        "heartbeat-interval": 100 * timeout,
        "election-timeout": 1000 * timeout,
        "quota-backend-bytes": quota,
        "snapshot-count": LOG,
        "client-transport-security": security("server"),
        "peer-transport-security": security("peer"),
        "log-level": "warn",
        "logger": "zap",
        "cipher-suites": CIPHER_SUITES,
        // Members compare their data when they start and, cheaply, at each compaction. A difference raises an alarm.
        "feature-gates": "InitialCorruptCheck=true,CompactHashCheck=true",
    }))
}

/// Whether this node's member has written its log already.
pub fn has_data(root: &Path) -> bool {
    files::below(root, DATA).join("member/wal").is_dir()
}

/// Removes the data of a member that was cut off before it took part, so that it starts over. etcd must not be running.
/// Returns whether such data existed. After an error the next call judges them again.
pub fn start_over_if_never_begun(root: &Path) -> io::Result<bool> {
    let data = files::below(root, DATA);
    if !log::never_took_part(&data)? {
        return Ok(false);
    }
    fs::remove_dir_all(data.join("member"))?;
    Ok(true)
}

/// Whether this node's member sees a leader and answers a read that needs a quorum.
pub fn own_healthy(timeout: Duration) -> bool {
    health(OWN_HEALTH, timeout).is_ok_and(|answer| answer.code == 200)
}

/// Whether this node's member is being stopped, or was. It then serves no client, whatever it reports about itself.
pub fn own_is_stopping(root: &Path) -> bool {
    files::below(root, STOPPING).exists()
}

/// Whether this node's member does not run, or reports that it sees no leader. An API server that has only this member
/// can then not read or write. A member that does not answer at all may only be slow.
pub fn own_is_away(timeout: Duration) -> bool {
    is_away(&health(OWN_HEALTH, timeout))
}

const OWN_HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ports::ETCD_METRICS);

fn health(server: SocketAddr, timeout: Duration) -> anyhow::Result<Answer> {
    Client::plain(server, timeout)?.get(HEALTH)
}

fn is_away(health: &anyhow::Result<Answer>) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    match health {
        Ok(answer) => answer.code != 200 && String::from_utf8_lossy(&answer.body).contains("RAFT NO LEADER"),
        Err(error) => error.chain().filter_map(|cause| cause.downcast_ref()).any(refused),
    }
}

/// Whether `node`'s member sees a leader and answers a read that needs a quorum. The request uses the agent's
/// credentials in the directory `pki`.
pub fn healthy(node: &ControlNode, pki: &Path, timeout: Duration) -> bool {
    EtcdClient::new(node, pki, timeout).is_ok_and(|member| member.healthy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::three_nodes;

    #[test]
    fn the_configuration_of_the_first_of_three_nodes() {
        let settings = configuration(&three_nodes(), &forming(&three_nodes()), 7936 << 20).unwrap();
        insta::assert_snapshot!(format!("{settings:#}"));
    }

    #[test]
    fn stopping_member_is_known_until_its_next_start() {
        let root = tempfile::tempdir().unwrap();
        assert!(!own_is_stopping(root.path()));
        let file = files::below(root.path(), STOPPING);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(own_is_stopping(root.path()));

        let unit = include_str!("../../../../systemd/system/etcd.service");
        let lines: Vec<&str> = unit.lines().collect();
        assert!(lines.contains(&format!("ExecStop=+/usr/bin/touch {STOPPING}").as_str()), "{unit}");
        assert!(lines.contains(&format!("ExecStartPre=+/usr/bin/rm --force {STOPPING}").as_str()), "{unit}");
    }

    fn forming(config: &ControlPlane) -> InitialCluster {
        InitialCluster::of_forming(config, Uuid::from_u128(7))
    }

    #[test]
    fn joining_node_lists_the_present_members() {
        let config = three_nodes();
        let of = |number: u8, name: &str| Member {
            name: name.to_owned(),
            peer_urls: vec![format!("https://10.0.0.1{number}:2380")],
            ..Member::default()
        };
        let members = [of(2, "node2"), of(1, "")];
        let joining = InitialCluster::of_joining(&config, Uuid::nil(), &members).unwrap();
        let settings = configuration(&config, &joining, 0).unwrap();
        assert_eq!(settings["initial-cluster"], "node1=https://10.0.0.11:2380,node2=https://10.0.0.12:2380");
        assert_eq!(settings["initial-cluster-state"], "existing");
        assert_eq!(InitialCluster::of_joining(&config, Uuid::nil(), &members[..1]), None);
    }

    #[test]
    fn node_outside_of_the_list_has_no_member() {
        let mut config = three_nodes();
        config.node.name = "other".into();
        assert_eq!(configuration(&config, &forming(&config), 0), None);
    }

    #[test]
    fn stopped_or_leaderless_member_is_away_at_once() {
        let said = |code, body: &str| is_away(&Ok(Answer { code, body: body.as_bytes().to_vec() }));
        // etcd 3.6.16.
        assert!(said(503, r#"{"health":"false","reason":"RAFT NO LEADER"}"#));
        assert!(!said(503, r#"{"health":"false","reason":"RANGE ERROR:etcdserver: request timed out"}"#));
        assert!(!said(503, r#"{"health":"false","reason":"ALARM CORRUPT"}"#));
        assert!(!said(200, r#"{"health":"true","reason":""}"#));

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let asked = || is_away(&health(server, Duration::from_millis(100)));
        assert!(!asked(), "nobody answers");
        drop(listener);
        assert!(asked(), "nobody is there");
    }

    #[test]
    fn member_without_space_counts_as_healthy() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        // As etcd 3.6.16 with the alarm NOSPACE.
        let answering = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut question = [0; 1024];
            let length = stream.read(&mut question).unwrap();
            let excluded = String::from_utf8_lossy(&question[..length]).contains("exclude=NOSPACE");
            let answer = match excluded {
                true => "HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{\"health\":\"true\",\"reason\":\"\"}",
                false => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            };
            stream.write_all(answer.as_bytes()).unwrap();
        });
        assert_eq!(health(server, Duration::from_secs(60)).unwrap().code, 200);
        answering.join().unwrap();
    }

    #[test]
    fn timeouts_stay_within_what_etcd_accepts() {
        let mut config = three_nodes();
        config.timeout_factor = 20;
        let settings = configuration(&config, &forming(&config), 0).unwrap();
        let (heartbeat, election) = (&settings["heartbeat-interval"], &settings["election-timeout"]);
        assert!(election.as_u64().unwrap() <= 50_000 && election.as_u64().unwrap() >= 5 * heartbeat.as_u64().unwrap());
    }
}
