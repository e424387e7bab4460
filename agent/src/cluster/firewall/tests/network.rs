//! The network of the tests: its hosts, their packets, and who receives them.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::host::fixture::{Namespace, eventually};

/// As in the configuration of the tests.
pub const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
pub const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 5);
/// The device of the pod on the node.
const POD_DEVICE: &str = "veth1a2b3c4d";
/// Another pod of the node: only its device and its route exist.
pub const OTHER_POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 6);
const OTHER_POD_DEVICE: &str = "veth5e6f7a8b";
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// An address of the node's loopback. No device of a stranger can have it.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub const POD_PORT: u16 = 8080;
/// A port that is not in the table of ports.
pub const NO_PURPOSE: u16 = 7777;

/// How long to wait for an answer. If there is one, it comes within microseconds.
const ANSWER_LIMIT: Duration = Duration::from_millis(400);

pub struct Network {
    pub node: Namespace,
    pub peer: Namespace,
    pub stranger: Namespace,
    pub pod: Namespace,
    _switch: Namespace,
}

impl Network {
    /// The node has no firewall, and no protection of the kernel against forged addresses.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let [switch, node, peer, stranger, pod] =
            ["switch", "node", "peer", "stranger", "pod"].map(|name| Namespace::new(&format!("{name}{number}")));
        switch.ip("link add switch type bridge");
        switch.ip("link set switch up");
        for (number, (namespace, address)) in [(&node, NODE), (&peer, PEER), (&stranger, STRANGER)].iter().enumerate() {
            switch.ip(&format!("link add port{number} type veth peer name eth0 netns {}", namespace.0));
            switch.ip(&format!("link set port{number} master switch up"));
            namespace.ip("link set lo up");
            namespace.ip(&format!("address add {address}/24 dev eth0"));
            namespace.ip("link set eth0 up");
        }
        // As the CNI plugin `ptp` does it.
        node.ip(&format!("link add {POD_DEVICE} type veth peer name eth0 netns {}", pod.0));
        node.ip(&format!("address add 10.244.0.1/32 dev {POD_DEVICE}"));
        node.ip(&format!("link set {POD_DEVICE} up"));
        node.ip(&format!("route add {POD} dev {POD_DEVICE}"));
        node.ip(&format!("link add {OTHER_POD_DEVICE} type veth peer name other"));
        node.ip("link set other up");
        node.ip(&format!("link set {OTHER_POD_DEVICE} up"));
        node.ip(&format!("route add {OTHER_POD} dev {OTHER_POD_DEVICE}"));
        node.ip("route add unreachable 10.244.0.0/24");
        pod.ip("link set lo up");
        pod.ip(&format!("address add {POD}/32 dev eth0"));
        pod.ip("link set eth0 up");
        pod.ip("route add 10.244.0.1 dev eth0");
        pod.ip("route add default via 10.244.0.1");
        set(&stranger, "all/route_localnet", "1");
        for way in ["10.244.0.0/24", "10.96.0.0/16", "127.0.0.2"] {
            stranger.ip(&format!("route add {way} via {NODE} dev eth0 src {STRANGER}"));
        }
        set(&node, "all/forwarding", "1");
        set(&node, "all/route_localnet", "1");
        for device in ["all", "eth0", POD_DEVICE] {
            set(&node, &format!("{device}/rp_filter"), "0");
        }
        Self { node, peer, stranger, pod, _switch: switch }
    }

    /// Checks that the `open` ports are reached within some time, and that the `closed` ones are not.
    pub fn sees(&self, who: &str, from: &Namespace, to: Ipv4Addr, open: &[u16], closed: &[u16]) {
        for port in open {
            eventually(&format!("{who} reaching {to}:{port}"), || reaches(to, *port).on(from));
        }
        let tried: Vec<_> = closed.iter().map(|port| (port, from.spawn(reaches(to, *port).0))).collect();
        for (port, reached) in tried {
            assert!(!reached.join().unwrap(), "{who} reaches {to}:{port}");
        }
    }
}

/// A setting of a device, or of all. Device names have dots, so it writes files instead of running sysctl.
fn set(namespace: &Namespace, setting: &str, value: &'static str) {
    let path = format!("/proc/sys/net/ipv4/conf/{setting}");
    namespace.run(move || std::fs::write(path, value).unwrap());
}

struct Attempt(Box<dyn FnOnce() -> bool + Send>);

impl Attempt {
    fn on(self, namespace: &Namespace) -> bool {
        namespace.run(self.0)
    }
}

fn reaches(to: Ipv4Addr, port: u16) -> Attempt {
    Attempt(Box::new(move || match TcpStream::connect_timeout(&SocketAddrV4::new(to, port).into(), ANSWER_LIMIT) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::TimedOut => false,
        Err(error) => panic!("connecting to {to}:{port}: {error}"),
    }))
}

/// Listens on TCP ports of a namespace until it is dropped.
pub fn listening(namespace: &Namespace, ports: &[u16]) -> Vec<TcpListener> {
    let ports = ports.to_vec();
    namespace.run(move || ports.iter().map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).unwrap()).collect())
}

/// A packet that is defined to the last byte.
#[derive(Clone, Copy)]
pub struct Packet {
    /// IANA's number of the protocol.
    protocol: u8,
    head: [u8; 8],
    ttl: u8,
    /// `None` for the sender's own.
    source: Option<Ipv4Addr>,
}

/// An advertisement of VRRP version 3 with priority 255 and an interval of 40 s (RFC 9568, section 5.1). The scenarios
/// make theirs in `tests/src/network_outsider.rs`, with a checksum that keepalived accepts.
pub const VRRP: Packet = Packet { protocol: 112, head: [0x31, 10, 255, 1, 0x0f, 0xa0, 0, 0], ttl: 255, source: None };

/// A request for an echo (RFC 792), which the node accepts from any sender. Its checksum is wrong, and nothing answers.
pub const ECHO: Packet = Packet { protocol: 1, head: [8, 0, 0, 0, 0, 0, 0, 0], ttl: 64, source: None };

/// A datagram to a port.
pub fn datagram(port: u16) -> Packet {
    let [high, low] = port.to_be_bytes();
    // From port 4660, 16 bytes long, without a checksum (RFC 768).
    Packet { protocol: 17, head: [0x12, 0x34, high, low, 0, 16, 0, 0], ttl: 64, source: None }
}

impl Packet {
    pub fn with_ttl(self, ttl: u8) -> Self {
        Self { ttl, ..self }
    }

    /// With this sender's address, from any sender.
    pub fn from(self, source: Ipv4Addr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// With its header (RFC 791, section 3.1). The kernel writes length and checksum, and the source if it is zero.
    fn bytes(self, to: Ipv4Addr, content: [u8; 8]) -> Vec<u8> {
        let source = self.source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
        let start = [0x45, 0, 0, 0, 0, 0, 0, 0, self.ttl, self.protocol, 0, 0];
        [&start[..], &source, &to.octets(), &self.head, &content].concat()
    }
}

/// Whether a packet from one namespace is delivered in the other, which is the node's or the other node's.
pub fn hears(to: &Namespace, from: &Namespace, packet: &Packet) -> bool {
    static SENT: AtomicU64 = AtomicU64::new(1);
    let content = SENT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let packet = *packet;
    let address = if to.0.contains("peer") { PEER } else { NODE };
    let ear = to.run(move || raw(packet.protocol.into()));
    let bytes = packet.bytes(address, content);
    from.run(move || {
        // IPPROTO_RAW: the packet has its header (raw(7)).
        raw(255).send_to(&bytes, &SocketAddrV4::new(address, 0).into()).unwrap();
    });
    let until = Instant::now() + ANSWER_LIMIT;
    while Instant::now() < until {
        let mut received = [0; 100];
        match (&ear).read(&mut received) {
            // Another packet may still be on its way.
            Ok(length) if received[..length].ends_with(&content) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("receiving: {error}"),
        }
    }
    false
}

/// Receives each packet of the protocol that is delivered, even if no program listens.
fn raw(protocol: i32) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol.into())).unwrap();
    socket.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
    socket
}
