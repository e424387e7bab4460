//! A node, another node, a pod and strangers in network namespaces of the kernel, on one switch.

mod network;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use contract::ports::{self, Caller, Protocol};

use super::{Firewall, HostPorts, Rules};
use crate::cluster::pod_network::desired::{Desired, Remote, Vxlan};
use crate::cluster::pod_network::packets;
use crate::host::command::{self, Command, Host, Runner};
use crate::host::fixture::{Namespace, eventually};
use crate::intake::config::fixture::{joined, one_node, three_nodes, worker};
use crate::intake::config::{Config, ControlPlane};

use network::{
    ECHO, LOOPBACK, NO_PURPOSE, NODE, Network, OTHER_POD, PEER, POD, POD_PORT, SERVICE, STRANGER, VRRP, datagram,
    hears, listening,
};

fn tcp(callers: &[Caller]) -> Vec<u16> {
    let ports = ports::TABLE.iter().filter(|port| port.protocol == Protocol::Tcp && callers.contains(&port.caller));
    ports.filter_map(|port| port.number).collect()
}

/// The agent with a separate directory.
struct Keeper {
    firewall: Arc<Firewall>,
    root: tempfile::TempDir,
}

impl Keeper {
    fn new() -> Self {
        Self::started(tempfile::tempdir().unwrap())
    }

    fn started(root: tempfile::TempDir) -> Self {
        Self { firewall: Arc::new(Firewall::new(root.path())), root }
    }

    fn lay(&self, node: &Namespace, config: &ControlPlane) -> bool {
        self.lay_of(node, &Config::ControlPlane(config.clone()))
    }

    fn lay_of(&self, node: &Namespace, config: &Config) -> bool {
        let (rules, firewall) = (Rules::of(config), Arc::clone(&self.firewall));
        node.run(move || firewall.ensure(&Host, &rules).unwrap())
    }
}

/// Loads the pod network's table with another node at this address.
fn pod_network_knows(node: &Namespace, other: Option<Ipv4Addr>) {
    let remotes = other.map(|address| ("10.244.1.0/24".parse().unwrap(), Remote { address, mac: String::new() }));
    let desired = Desired {
        vxlan: Vxlan { vni: 1, port: ports::VXLAN, local: NODE, underlay: "eth0".into(), learning: false },
        mac: String::new(),
        mtu: 1450,
        pod_cidr: "10.244.0.0/24".parse().unwrap(),
        remotes: remotes.into_iter().collect::<BTreeMap<_, _>>(),
    };
    node.run(move || {
        packets::table().ensure(&Host, &packets::content("10.244.0.0/16".parse().unwrap(), &desired)).unwrap()
    });
}

fn nft(node: &Namespace, input: &'static str) {
    node.run(move || Host.run(&Command::new("nft").args(["-f", "-"]).input(input)).unwrap());
}

/// The ports at which the node itself listens on all addresses, and one without a purpose.
fn all() -> Vec<u16> {
    [&tcp(&Caller::ALL)[..], &[NO_PURPOSE]].concat()
}

#[test]
fn strangers_peers_and_pods_reach_their_listed_ports() {
    let network = Network::new();
    let Network { node, peer, stranger, pod, .. } = &network;
    let _node = listening(node, &all());
    let _peer = listening(peer, &all());
    let _pod = listening(pod, &[POD_PORT]);
    // As kube-proxy does it for a service.
    nft(
        node,
        "table ip proxy { chain nat { type nat hook prerouting priority dstnat; \
         ip daddr 10.96.0.10 tcp dport 53 dnat to 10.0.0.11:7777; }; }",
    );

    // Without a firewall all ports are open: the firewall closes the closed ones below.
    network.sees("a stranger", stranger, NODE, &all(), &[]);
    network.sees("a stranger", stranger, POD, &[POD_PORT], &[]);
    network.sees("a stranger", stranger, SERVICE, &[53], &[]);
    network.sees("a stranger", stranger, LOOPBACK, &[NO_PURPOSE], &[]);
    eventually("a stranger's VRRP", || hears(node, stranger, &VRRP));
    eventually("a stranger's datagram in the tunnel", || hears(node, stranger, &datagram(ports::VXLAN)));
    // A pod with the right to send raw packets can do this.
    eventually("a pod's VRRP as the other node's", || hears(node, pod, &VRRP.from(PEER)));
    eventually("a pod's datagram as the other node's", || hears(node, pod, &datagram(ports::VXLAN).from(PEER)));
    eventually("a pod's echo as another pod's", || hears(node, pod, &ECHO.from(OTHER_POD)));

    let keeper = Keeper::new();
    assert!(keeper.lay(node, &three_nodes()));
    assert!(!keeper.lay(node, &three_nodes()), "it holds");
    pod_network_knows(node, Some(PEER));

    let open = tcp(&[Caller::Everybody, Caller::Administrators, Caller::AdministratorsAndNodes]);
    let within = [&open[..], &tcp(&[Caller::NodesAndPods])].concat();
    let control_nodes = tcp(&[Caller::ControlNodes]);
    let but = |open: &[u16]| all().into_iter().filter(|port| !open.contains(port)).collect::<Vec<_>>();
    network.sees("a stranger", stranger, NODE, &open, &but(&open));
    network.sees("a stranger", stranger, POD, &[], &[POD_PORT]);
    network.sees("a stranger", stranger, SERVICE, &[], &[53]);
    network.sees("a stranger", stranger, LOOPBACK, &[], &[NO_PURPOSE]);
    let of_nodes = tcp(&[Caller::Nodes]);
    assert!(!of_nodes.is_empty());
    let to_peers = [&within[..], &of_nodes, &control_nodes].concat();
    network.sees("the other node", peer, NODE, &to_peers, &but(&to_peers));
    network.sees("a pod", pod, NODE, &within, &but(&within));
    network.sees("a pod", pod, SERVICE, &[53], &[]);
    // The pod's packets arrive there with the node's address.
    let not_of_pods = [&of_nodes[..], &control_nodes].concat();
    network.sees("a pod", pod, PEER, &but(&not_of_pods), &not_of_pods);
    let memberlist = datagram(ports::MEMBERLIST);
    assert!(!hears(node, stranger, &memberlist) && !hears(node, pod, &memberlist) && !hears(peer, pod, &memberlist));
    eventually("the other node's word on who is there", || hears(node, peer, &memberlist));

    for (who, namespace) in [("a stranger", stranger), ("a pod", pod)] {
        assert!(!hears(node, namespace, &VRRP), "{who}'s VRRP");
        assert!(!hears(node, namespace, &datagram(ports::VXLAN)), "{who}'s datagram in the tunnel");
    }
    assert!(!hears(peer, pod, &VRRP), "a pod's VRRP to the other node");
    assert!(!hears(node, peer, &VRRP.with_ttl(254)), "it was forwarded on its way");
    eventually("the other node's VRRP", || hears(node, peer, &VRRP));
    assert!(!hears(node, peer, &VRRP.with_ttl(254)), "the conversation is known, the packet still forwarded");
    eventually("the other node's datagram in the tunnel", || hears(node, peer, &datagram(ports::VXLAN)));
    assert!(!hears(node, pod, &VRRP.from(PEER)), "a pod's VRRP as the other node's");
    assert!(!hears(node, pod, &datagram(ports::VXLAN).from(PEER)), "a pod's datagram as the other node's");
    eventually("a pod's echo", || hears(node, pod, &ECHO));
    assert!(!hears(node, pod, &ECHO.from(OTHER_POD)), "a pod's echo as another pod's");

    // The agent repairs the table after `nft flush ruleset`.
    node.run(|| Host.run(&Command::new("nft").args(["flush", "ruleset"])).unwrap());
    network.sees("a stranger", stranger, NODE, &control_nodes, &[]);
    assert!(keeper.lay(node, &three_nodes()));
    network.sees("a stranger", stranger, NODE, &open, &control_nodes);
}

#[test]
fn services_and_pods_open_none_of_nodes_ports() {
    let network = Network::new();
    let Network { node, stranger, pod, peer, .. } = &network;
    let _node = listening(node, &[&all()[..], &[30_999, 80]].concat());
    let _peer = listening(peer, &all());
    let _pod = listening(pod, &[POD_PORT]);
    // As kube-proxy does it for NodePorts: to a pod, to the node's own etcd and to another node's.
    nft(
        node,
        "table ip proxy { chain nat { type nat hook prerouting priority dstnat; \
         tcp dport 30080 dnat to 10.244.0.5:8080; tcp dport 30081 dnat to 10.0.0.11:80; \
         tcp dport 30082 dnat to 10.0.0.11:2379; tcp dport 30083 dnat to 10.0.0.12:2379; }; \
         chain back { type nat hook postrouting priority srcnat; ip daddr 10.0.0.12 masquerade; }; }",
    );
    network.sees("a stranger", stranger, NODE, &[30_080, 30_081, 30_082, 30_083, 30_999, 80], &[]);
    let keeper = Keeper::new();
    keeper.lay(node, &three_nodes());
    network.sees("a stranger", stranger, NODE, &[30_080, 30_081, 30_999], &[30_082, 30_083, 80, NO_PURPOSE]);

    let pods = r#"[{"spec": {"hostNetwork": true, "containers": [
        {"ports": [{"hostPort": 7777}, {"hostPort": 2379}, {"hostPort": 10257}]}]}}]"#;
    keeper.firewall.open(HostPorts::of_pods(serde_json::from_str(pods).unwrap())).unwrap();
    assert!(keeper.lay(node, &three_nodes()));
    let control_nodes = tcp(&[Caller::ControlNodes, Caller::Loopback]);
    network.sees("a stranger", stranger, NODE, &[NO_PURPOSE], &control_nodes);
    // A restarted agent knows them before the API answers.
    let again = Keeper::started(keeper.root);
    assert!(again.lay(node, &three_nodes()));
    network.sees("a stranger", stranger, NODE, &[NO_PURPOSE], &control_nodes);
}

#[test]
fn administrators_connect_from_their_networks_alone() {
    let network = Network::new();
    let Network { node, peer, stranger, pod, .. } = &network;
    let _node = listening(node, &all());
    let mut config = three_nodes();
    // One within the other.
    config.node.admin_networks = ["10.1.0.0/16", "10.1.2.0/24", "192.0.2.7/32"].map(|net| net.parse().unwrap()).into();
    let keeper = Keeper::new();
    keeper.lay(node, &config);
    pod_network_knows(node, None);
    let (ssh, endpoint, api) = (ports::SSH, ports::NODE, ports::API);
    network.sees("a stranger", stranger, NODE, &[api], &[ssh, endpoint]);
    network.sees("the other node", peer, NODE, &[api, endpoint, ports::ETCD_PEER], &[ssh]);
    network.sees("a pod", pod, NODE, &[api, endpoint, ports::KUBELET], &[ssh]);
    config.node.admin_networks.push(format!("{STRANGER}/32").parse().unwrap());
    assert!(keeper.lay(node, &config));
    network.sees("an administrator", stranger, NODE, &[api, ssh, endpoint], &[ports::ETCD_PEER]);

    // The other node has no rules here: a client behind this node reaches all of it, also at the virtual IP there.
    let _peer = listening(peer, &all());
    let virtual_address = config.cluster.virtual_address.unwrap();
    peer.ip(&format!("address add {virtual_address}/32 dev eth0"));
    for there in [PEER, virtual_address] {
        network.sees("a pod", pod, there, &[api, endpoint, ports::KUBELET], &[ssh, ports::ETCD_PEER]);
    }
    // A node of another cluster, or a vCenter: a client in a pod that manages them reaches both.
    let _worker = listening(stranger, &[&all()[..], &[443]].concat());
    network.sees("a pod", pod, STRANGER, &[api, endpoint, 443, ssh, ports::MEMBERLIST], &[]);
    // A worker, which only the list of nodes names.
    pod_network_knows(node, Some(STRANGER));
    network.sees("a pod", pod, STRANGER, &[endpoint, ports::KUBELET, NO_PURPOSE], &[ssh, ports::MEMBERLIST]);
    config.node.admin_networks.clear();
    assert!(keeper.lay(node, &config));
    network.sees("a pod", pod, PEER, &[ssh], &[ports::ETCD_PEER]);
    network.sees("a pod", pod, STRANGER, &[ssh], &[ports::MEMBERLIST]);
}

/// A service with the tunnel's port as its NodePort. The tunnel's port is in the range of NodePorts.
#[test]
fn node_port_takes_no_packets_from_the_tunnel() {
    let network = Network::new();
    let Network { node, peer, .. } = &network;
    let tunnel = datagram(30_472);
    // As kube-proxy does it.
    nft(
        node,
        "table ip proxy { chain nat { type nat hook prerouting priority dstnat; \
         fib daddr type local udp dport 30472 dnat to 10.244.0.5:8080; }; }",
    );
    assert!(!hears(node, peer, &tunnel), "the service's own");
    let mut config = three_nodes();
    config.cluster.vxlan_port = 30_472;
    let keeper = Keeper::new();
    assert!(keeper.lay(node, &config));
    pod_network_knows(node, Some(PEER));
    eventually("the other node's datagram in the tunnel", || hears(node, peer, &tunnel));
}

#[test]
fn joined_node_is_accepted_while_it_is_listed() {
    let network = Network::new();
    let Network { node, stranger, .. } = &network;
    let _node = listening(node, &all());
    let keeper = Keeper::new();
    keeper.lay(node, &one_node());
    let of_nodes = tcp(&[Caller::NodesAndPods, Caller::Nodes]);
    let heard = || hears(node, stranger, &datagram(ports::VXLAN));
    for known in [false, true, false] {
        pod_network_knows(node, known.then_some(STRANGER));
        if known {
            network.sees("the node that joined", stranger, NODE, &of_nodes, &[ports::ETCD_PEER, NO_PURPOSE]);
            eventually("its datagram in the tunnel", heard);
        } else {
            network.sees("a stranger", stranger, NODE, &[ports::API], &of_nodes);
            assert!(!heard());
        }
    }
    // If the table of the pod network is deleted, the node accepts no other node.
    pod_network_knows(node, Some(STRANGER));
    nft(node, "delete table ip kaas_pods");
    network.sees("a node that cannot be known", stranger, NODE, &[ports::API], &of_nodes);
    assert!(!heard());
}

/// A worker knows nodes only from the list of nodes, even control-plane nodes.
#[test]
fn worker_is_reached_by_listed_nodes_alone() {
    let network = Network::new();
    let Network { node, peer, stranger, pod, .. } = &network;
    let _node = listening(node, &[&all()[..], &[30_999]].concat());
    let _peer = listening(peer, &all());
    let keeper = Keeper::new();
    let config = |said| Config::Worker(crate::intake::config::Worker { cluster: said, ..worker() });
    // It has not joined: missing settings block nothing.
    assert!(keeper.lay_of(node, &config(worker().cluster)));
    let administrated = [ports::SSH];
    network.sees("a stranger", stranger, NODE, &administrated, &[ports::KUBELET]);
    assert!(keeper.lay_of(node, &config(joined().cluster)));
    for listed in [false, true] {
        pod_network_knows(node, listed.then_some(PEER));
        let (of_nodes, ssh) = ([ports::KUBELET, ports::MEMBERLIST, ports::SSH], [ports::SSH]);
        let (open, closed): (&[u16], &[u16]) = if listed { (&of_nodes, &[]) } else { (&ssh, &of_nodes[..2]) };
        network.sees("a node", peer, NODE, open, closed);
        let heard = |port| hears(node, peer, &datagram(port));
        if listed {
            eventually("a node's datagram in the tunnel", || heard(ports::VXLAN));
            eventually("a node's word on who is there", || heard(ports::MEMBERLIST));
        } else {
            assert!(!heard(ports::VXLAN) && !heard(ports::MEMBERLIST));
        }
    }
    network.sees("a stranger", stranger, NODE, &[ports::SSH, 30_999], &[ports::KUBELET, NO_PURPOSE]);
    assert!(!hears(node, peer, &VRRP), "a worker takes part in no virtual IP");
    network.sees("a pod", pod, PEER, &[ports::API, ports::KUBELET], &tcp(&[Caller::ControlNodes]));
}

/// A kernel that accepts none of the rules.
struct Unwilling;

impl Runner for Unwilling {
    fn run(&self, _: &Command) -> Result<Vec<u8>, command::Error> {
        let broken = "delete table inet kaas_firewall\nadd rule inet kaas_firewall nowhere accept\n";
        Host.run(&Command::new("nft").args(["-f", "-"]).input(broken))
    }
}

#[test]
fn failed_load_keeps_the_former_rules() {
    let network = Network::new();
    let Network { node, stranger, .. } = &network;
    let _node = listening(node, &all());
    let keeper = Keeper::new();
    keeper.lay(node, &one_node());
    let (firewall, rules) = (Arc::clone(&keeper.firewall), Rules::of(&Config::ControlPlane(three_nodes())));
    let finding = node.run(move || firewall.ensure(&Unwilling, &rules).unwrap_err());
    assert_eq!(finding.code, "firewall.failed");
    assert!(finding.seen.contains("nowhere"), "it says what nft said: {finding}");
    network.sees("a stranger", stranger, NODE, &[ports::API], &tcp(&[Caller::ControlNodes]));
    assert!(keeper.lay(node, &three_nodes()), "it is tried again");
}

#[test]
fn open_connections_survive_narrower_rules() {
    let network = Network::new();
    let Network { node, stranger, .. } = &network;
    let listeners = listening(node, &[ports::SSH]);
    let keeper = Keeper::new();
    let mut config = three_nodes();
    keeper.lay(node, &config);
    let session = stranger.run(|| TcpStream::connect((NODE, ports::SSH)).unwrap());
    let (server, _) = listeners[0].accept().unwrap();

    config.node.admin_networks = vec!["192.0.2.0/24".parse().unwrap()];
    assert!(keeper.lay(node, &config));
    network.sees("a stranger", stranger, NODE, &[], &[ports::SSH]);
    for (mut from, mut to) in [(&session, &server), (&server, &session)] {
        from.write_all(b"still here").unwrap();
        let mut heard = [0; 10];
        to.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        to.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"still here");
    }
}
