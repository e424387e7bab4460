//! A node, another node, a pod and a stranger in network namespaces of the kernel, on one switch.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use contract::ports::{self, Caller, Protocol};
use socket2::{Domain, Socket, Type};

use super::{Firewall, HostPorts, Rules};
use crate::cluster::pod_network::desired::{Desired, Remote, Vxlan};
use crate::cluster::pod_network::packets;
use crate::host::command::{Command, Host, Runner};
use crate::host::fixture::{Namespace, eventually};
use crate::intake::config::fixture::three_nodes;

const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 5);
/// No purpose names it.
const NO_PURPOSE: u16 = 7777;
/// An answer comes within microseconds; none never comes.
const PATIENCE: Duration = Duration::from_millis(400);

struct Network {
    node: Namespace,
    peer: Namespace,
    stranger: Namespace,
    pod: Namespace,
    _switch: Namespace,
}

impl Network {
    /// The node without a firewall.
    fn new() -> Self {
        let [switch, node, peer, stranger, pod] = ["fw0", "fw1", "fw2", "fw3", "fw4"].map(Namespace::new);
        switch.ip("link add switch type bridge");
        switch.ip("link set switch up");
        for (number, (namespace, address)) in [(&node, NODE), (&peer, PEER), (&stranger, STRANGER)].iter().enumerate() {
            switch.ip(&format!("link add port{number} type veth peer name eth0 netns {}", namespace.0));
            switch.ip(&format!("link set port{number} master switch up"));
            namespace.ip("link set lo up");
            namespace.ip(&format!("address add {address}/24 dev eth0"));
            namespace.ip("link set eth0 up");
        }
        node.ip("link add kaas.pods type bridge");
        node.ip("address add 10.244.0.1/24 dev kaas.pods");
        node.ip("link set kaas.pods up");
        node.ip(&format!("link add pod type veth peer name eth0 netns {}", pod.0));
        node.ip("link set pod master kaas.pods up");
        pod.ip("link set lo up");
        pod.ip(&format!("address add {POD}/24 dev eth0"));
        pod.ip("link set eth0 up");
        pod.ip("route add default via 10.244.0.1");
        stranger.ip(&format!("route add 10.244.0.0/24 via {NODE}"));
        for (namespace, setting) in [
            (&node, "net/ipv4/ip_forward"),
            (&node, "net/ipv4/conf/all/route_localnet"),
            (&stranger, "net/ipv4/conf/all/route_localnet"),
        ] {
            let path = format!("/proc/sys/{setting}");
            namespace.run(move || std::fs::write(path, "1").unwrap());
        }
        Self { node, peer, stranger, pod, _switch: switch }
    }

    /// Whether a connection comes about.
    fn reaches(&self, from: &Namespace, to: Ipv4Addr, port: u16) -> bool {
        from.run(move || match TcpStream::connect_timeout(&SocketAddrV4::new(to, port).into(), PATIENCE) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::TimedOut => false,
            Err(error) => panic!("connecting to {to}:{port}: {error}"),
        })
    }

    /// Says of each port whether it is reached, until that is as it should be.
    fn sees(&self, who: &str, from: &Namespace, to: Ipv4Addr, open: &[u16], closed: &[u16]) {
        for port in open {
            eventually(&format!("{who} reaching {to}:{port}"), || self.reaches(from, to, *port));
        }
        for port in closed {
            assert!(!self.reaches(from, to, *port), "{who} reaches {to}:{port}");
        }
    }
}

/// Listens on TCP ports of a namespace until it is dropped.
fn listening(namespace: &Namespace, address: Ipv4Addr, ports: &[u16]) -> Vec<TcpListener> {
    let ports = ports.to_vec();
    namespace.run(move || ports.iter().map(|port| TcpListener::bind((address, *port)).unwrap()).collect())
}

fn tcp(callers: &[Caller]) -> Vec<u16> {
    let ports = ports::TABLE.iter().filter(|port| port.protocol == Protocol::Tcp && callers.contains(&port.caller));
    ports.filter_map(|port| port.number).collect()
}

fn lay(node: &Namespace, rules: &Rules, firewall: &Arc<Firewall>) -> bool {
    let (rules, firewall) = (rules.clone(), Arc::clone(firewall));
    node.run(move || firewall.ensure(&Host, &rules).unwrap())
}

/// A socket for bare packets of VRRP, which needs no router to be heard.
fn vrrp() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(112.into())).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Whether the node hears a packet of VRRP with this time to live.
fn hears_vrrp(network: &Network, from: &Namespace, ttl: u32) -> bool {
    let ear = network.node.run(vrrp);
    from.run(move || {
        let mouth = vrrp();
        mouth.set_ttl_v4(ttl).unwrap();
        mouth.send_to(&[0; 20], &SocketAddrV4::new(NODE, 0).into()).unwrap();
    });
    let mut packet = [MaybeUninit::uninit(); 100];
    heard(ear.recv(&mut packet))
}

/// Whether the node hears a datagram for the tunnel.
fn hears_tunnel(network: &Network, from: &Namespace) -> bool {
    let ear = network.node.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ports::VXLAN)).unwrap());
    ear.set_read_timeout(Some(PATIENCE)).unwrap();
    from.run(|| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[0; 20], (NODE, ports::VXLAN)).unwrap());
    heard(ear.recv(&mut [0; 100]))
}

fn heard(received: std::io::Result<usize>) -> bool {
    match received {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("receiving: {error}"),
    }
}

#[test]
fn strangers_peers_and_pods_reach_what_the_table_says() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let network = Network::new();
    let Network { node, peer, stranger, pod, .. } = &network;
    let everybody = tcp(&[Caller::Everybody]);
    let (nodes, control_nodes) = (tcp(&[Caller::Nodes]), tcp(&[Caller::ControlNodes]));
    let all = [&everybody[..], &nodes, &control_nodes, &[NO_PURPOSE]].concat();
    let _node = listening(node, Ipv4Addr::UNSPECIFIED, &all);
    let _peer = listening(peer, Ipv4Addr::UNSPECIFIED, &all);
    let _pod = listening(pod, Ipv4Addr::UNSPECIFIED, &[8080]);
    stranger.ip("route add 127.0.0.2 via 10.0.0.11 dev eth0 src 10.0.0.99");
    let loopback = Ipv4Addr::new(127, 0, 0, 2);

    // Without a firewall all of it is open: what is closed below is closed by it.
    network.sees("a stranger", stranger, NODE, &all, &[]);
    network.sees("a stranger", stranger, POD, &[8080], &[]);
    network.sees("a stranger", stranger, loopback, &[NO_PURPOSE], &[]);
    eventually("a stranger's VRRP", || hears_vrrp(&network, stranger, 255));
    eventually("a stranger's datagram in the tunnel", || hears_tunnel(&network, stranger));

    let config = three_nodes();
    let (rules, firewall) = (Rules::of(&config), Arc::new(Firewall::default()));
    assert!(lay(node, &rules, &firewall));
    assert!(!lay(node, &rules, &firewall), "it holds");
    let desired = Desired {
        vxlan: Vxlan { vni: 1, port: ports::VXLAN, local: NODE, underlay: "eth0".into(), learning: false },
        mac: String::new(),
        mtu: 1450,
        pod_cidr: "10.244.0.0/24".parse().unwrap(),
        remotes: BTreeMap::from([("10.244.1.0/24".parse().unwrap(), Remote { address: PEER, mac: String::new() })]),
    };
    node.run(move || {
        packets::table().ensure(&Host, &packets::content("10.244.0.0/16".parse().unwrap(), &desired)).unwrap()
    });

    let closed = [&nodes[..], &control_nodes, &[NO_PURPOSE]].concat();
    network.sees("a stranger", stranger, NODE, &everybody, &closed);
    network.sees("a stranger", stranger, POD, &[], &[8080]);
    network.sees("a stranger", stranger, loopback, &[], &[NO_PURPOSE]);
    let open = [&everybody[..], &nodes, &control_nodes].concat();
    network.sees("the other node", peer, NODE, &open, &[NO_PURPOSE]);
    let (open, closed) = ([&everybody[..], &nodes].concat(), [&control_nodes[..], &[NO_PURPOSE]].concat());
    network.sees("a pod", pod, NODE, &open, &closed);
    // It comes there with the node's address.
    let open = [&everybody[..], &nodes, &[NO_PURPOSE]].concat();
    network.sees("a pod", pod, PEER, &open, &control_nodes);


    assert!(!hears_vrrp(&network, stranger, 255) && !hears_tunnel(&network, stranger));
    assert!(!hears_vrrp(&network, pod, 255) && !hears_tunnel(&network, pod));
    assert!(!hears_vrrp(&network, peer, 254), "it was forwarded on its way");
    eventually("the other node's VRRP", || hears_vrrp(&network, peer, 255));
    eventually("the other node's datagram in the tunnel", || hears_tunnel(&network, peer));

    // As kube-proxy does it for a NodePort.
    node.run(|| {
        let rule = "table ip proxy { chain nat { type nat hook prerouting priority dstnat; \
                    tcp dport 30080 dnat to 10.244.0.5:8080 } }";
        Host.run(&Command::new("nft").args(["-f", "-"]).input(rule)).unwrap()
    });
    network.sees("a stranger", stranger, NODE, &[30080], &[8080]);

    // A pod in the host's network opens a port of its own, and none of the control nodes'.
    let ports = br#"{"items": [{"spec": {"hostNetwork": true, "containers": [
        {"ports": [{"hostPort": 7777}, {"hostPort": 2379}]}]}}]}"#;
    firewall.open(HostPorts::of_pods(ports).unwrap());
    assert!(lay(node, &rules, &firewall));
    network.sees("a stranger", stranger, NODE, &[NO_PURPOSE], &control_nodes);

    // Somebody's `nft flush ruleset` is mended.
    node.run(|| Host.run(&Command::new("nft").args(["flush", "ruleset"])).unwrap());
    network.sees("a stranger", stranger, NODE, &control_nodes, &[]);
    assert!(lay(node, &rules, &firewall));
    network.sees("a stranger", stranger, NODE, &everybody, &control_nodes);
}
