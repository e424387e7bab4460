//! Hosts that are no part of the cluster: one on the lab's network, and one among the pods of a node. They send packets byte by
//! byte, and look for open ports.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::sockopt::RcvBufForce;
use socket2::{Domain, Socket, Type};

use crate::scenario::Scenario;

/// The time after which packets have arrived: between two namespaces they take less than a hundredth of it.
const QUIET: Duration = Duration::from_secs(2);

/// The fewest rounds of questions to silent ports.
const ROUNDS: usize = 3;

/// Room for the answers of three nodes at once, in bytes. The kernel's usual 208 KiB hold some 270 small packets.
const EAR: usize = 16 << 20;

/// A separate network namespace, which is removed with the lab.
pub struct NetworkOutsider {
    namespace: PathBuf,
    /// Its address.
    pub address: Ipv4Addr,
}

impl NetworkOutsider {
    /// On the network of the nodes, with an address that no node has.
    pub fn beside_the_nodes(scenario: &Scenario) -> Self {
        let lab = scenario.lab().network_namespace();
        let address = beside(scenario.lab().plan().nodes[0].address, 240);
        let stranger = Self { namespace: lab.with_added_extension("stranger"), address };
        stranger.connect(&name(&lab), "stranger", 24);
        ip(&format!("-n {} link set stranger master lab up", name(&lab)));
        stranger
    }

    /// Connected as a node's pods are, with an address of that node's range, and with all rights in its namespace.
    pub fn among_the_pods_of(scenario: &Scenario, node: &str) -> Self {
        let lab = scenario.lab().network_namespace();
        let address = pod_address(scenario, node, 250);
        let stranger = Self { namespace: lab.with_added_extension("pod"), address };
        let vm = scenario.lab().namespace_of(&scenario.vm_of(node)).unwrap_or_else(|error| panic!("{error:#}"));
        let (vm, own, gateway) = (name(&vm), name(&stranger.namespace), beside(address, 1));
        stranger.connect(&vm, "vethscenario", 32);
        // As the CNI plugin `ptp` does it.
        ip(&format!("-n {vm} address add {gateway}/32 dev vethscenario"));
        ip(&format!("-n {vm} link set vethscenario up"));
        ip(&format!("-n {vm} route add {address} dev vethscenario"));
        ip(&format!("-n {own} route add {gateway} dev eth0"));
        ip(&format!("-n {own} route add default via {gateway}"));
        stranger
    }

    /// Makes the namespace, with a cable to another one.
    fn connect(&self, other: &str, port: &str, prefix: u8) {
        let own = name(&self.namespace);
        ip(&format!("netns add {own}"));
        ip(&format!("-n {own} link set lo up"));
        ip(&format!("-n {other} link add {port} type veth peer name eth0 netns {own}"));
        ip(&format!("-n {own} address add {}/{prefix} dev eth0", self.address));
        ip(&format!("-n {own} link set eth0 up"));
    }

    /// Takes the namespace away.
    pub fn leave(self) {
        ip(&format!("netns delete {}", name(&self.namespace)));
    }

    /// Those TCP ports of an address that accept packets: a program listens, or the kernel answers that none does. A firewall drops
    /// packets without an answer.
    pub fn finds_open(&self, to: Ipv4Addr, ports: impl IntoIterator<Item = u16>) -> BTreeSet<u16> {
        // A port that was asked before may be known to a firewall as a conversation.
        static CALLS: AtomicU16 = AtomicU16::new(0);
        let from = SocketAddrV4::new(self.address, 40_000 + CALLS.fetch_add(1, Ordering::Relaxed));
        let ports: Vec<u16> = ports.into_iter().collect();
        self.run(move || {
            let ear = raw(nix::libc::IPPROTO_TCP);
            ear.set_nonblocking(true).expect("a socket");
            nix::sys::socket::setsockopt(&ear, RcvBufForce, &EAR).expect("a larger buffer");
            let mouth = raw(nix::libc::IPPROTO_RAW);
            let mut open = BTreeSet::new();
            // A busy machine loses answers. The silent ports are asked until a round finds nothing new.
            let mut rounds = 0;
            loop {
                let before = open.len();
                let silent: Vec<u16> = ports.iter().copied().filter(|port| !open.contains(port)).collect();
                for some in silent.chunks(200) {
                    for port in some {
                        send(&mouth, &packet(6, 64, *from.ip(), to, &tcp_syn(from, to, *port)), to);
                    }
                    listen(&ear, from, to, &mut open, Duration::from_millis(2));
                }
                listen(&ear, from, to, &mut open, QUIET);
                rounds += 1;
                if rounds >= ROUNDS && open.len() == before {
                    return open;
                }
            }
        })
    }

    /// The same of one port of an address that is reached by way of a node.
    pub fn finds_open_by_way_of(&self, node: Ipv4Addr, to: Ipv4Addr, port: u16) -> BTreeSet<u16> {
        let own = name(&self.namespace);
        ip(&format!("-n {own} route replace {to} via {node}"));
        self.finds_open(to, [port])
    }

    /// The answer of an HTTP server. Empty if it cannot be reached.
    pub fn reads(&self, server: Ipv4Addr, port: u16, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        self.run(move || {
            let mut answer = String::new();
            if let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddrV4::new(server, port).into(), QUIET)
                && stream.write_all(request.as_bytes()).is_ok()
                && stream.set_read_timeout(Some(QUIET)).is_ok()
            {
                let _ = stream.read_to_string(&mut answer);
            }
            answer
        })
    }

    /// Whether a datagram to a port of an address is answered, be it with a refusal.
    pub fn is_answered(&self, to: Ipv4Addr, port: u16) -> bool {
        self.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect((to, port)).expect("a socket");
            socket.set_read_timeout(Some(QUIET)).expect("a socket");
            socket.send(&[0; 32]).expect("sending a datagram");
            match socket.recv(&mut [0; 64]) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::ConnectionRefused,
            }
        })
    }

    /// Claims a virtual IP: sends each of these nodes advertisements of VRRP version 3 from `source`, with the owner's priority. The
    /// interval is in hundredths of a second, at most 4095 (RFC 9568, section 5.1).
    pub fn claims(&self, virtual_address: Ipv4Addr, source: Ipv4Addr, nodes: &[Ipv4Addr], interval: u16) {
        let [high, low] = interval.to_be_bytes();
        for &node in nodes.iter().filter(|node| **node != source) {
            let [.., router] = virtual_address.octets();
            let mut advert = [&[0x31, router, 255, 1, high, low, 0, 0][..], &virtual_address.octets()].concat();
            let sum = checksum(&[&pseudo_header(112, source, node, advert.len()), &advert]);
            advert[6..8].copy_from_slice(&sum);
            let bytes = packet(112, 255, source, node, &advert);
            self.run(move || (0..3).for_each(|_| send(&raw(nix::libc::IPPROTO_RAW), &bytes, node)));
        }
    }

    /// Sends a datagram from one pod to a port of another pod into the tunnel of that pod's node. The sender is `source`, as if another
    /// node had sent it (RFC 7348, section 5).
    pub fn tunnels(&self, source: Ipv4Addr, node: Ipv4Addr, (from_pod, to_pod): (Ipv4Addr, Ipv4Addr), port: u16) {
        let inner = packet(17, 64, from_pod, to_pod, &udp(port, b"from afar"));
        let [a, b, c, d] = node.octets();
        let mac = [0x02, 0x6b, a, b, c, d];
        let frame = [&mac[..], &[2, 0, 0, 0, 0, 1], &[8, 0], &with_sum(inner)].concat();
        let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat();
        let bytes = packet(17, 64, source, node, &udp(contract::ports::VXLAN, &vxlan));
        self.run(move || send(&raw(nix::libc::IPPROTO_RAW), &bytes, node));
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let file = File::open(&self.namespace).expect("the namespace");
        let thread = thread::spawn(move || {
            setns(file.as_fd(), CloneFlags::CLONE_NEWNET).expect("entering the namespace");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Hears what comes back from the ports of an address for a while.
fn listen(ear: &Socket, from: SocketAddrV4, to: Ipv4Addr, open: &mut BTreeSet<u16>, limit: Duration) {
    let mut until = Instant::now() + limit;
    while Instant::now() < until {
        let mut bytes = [0; 128];
        match (&*ear).read(&mut bytes) {
            // The header of IP has no options; the answer comes from the port that was asked (RFC 9293, section 3.1).
            Ok(length)
                if length >= 40 && bytes[12..16] == to.octets() && bytes[22..24] == from.port().to_be_bytes() =>
            {
                open.insert(u16::from_be_bytes([bytes[20], bytes[21]]));
                until = Instant::now() + limit;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("listening: {error}"),
        }
    }
}

/// The port that datagrams are sent from.
const SOURCE_PORT: u16 = 47_110;

fn tcp_syn(from: SocketAddrV4, to: Ipv4Addr, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let [own_high, own_low] = from.port().to_be_bytes();
    // A sequence number, five words of header, SYN, and a window of 1024 bytes.
    let mut segment = vec![own_high, own_low, high, low, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0];
    let sum = checksum(&[&pseudo_header(6, *from.ip(), to, segment.len()), &segment]);
    segment[16..18].copy_from_slice(&sum);
    segment
}

/// A datagram without a sum (RFC 768).
fn udp(port: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + content.len()).expect("a short datagram").to_be_bytes();
    [&SOURCE_PORT.to_be_bytes()[..], &port.to_be_bytes(), &length, &[0, 0], content].concat()
}

/// A packet whose sum is the kernel's to write (RFC 791, section 3.1).
fn packet(protocol: u8, ttl: u8, from: Ipv4Addr, to: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(20 + content.len()).expect("a short packet").to_be_bytes();
    [&[0x45, 0, high, low, 0, 0, 0, 0, ttl, protocol, 0, 0][..], &from.octets(), &to.octets(), content].concat()
}

/// The same with its sum: for one that no kernel sends.
fn with_sum(mut packet: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum);
    packet
}

fn pseudo_header(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).expect("a short packet").to_be_bytes();
    [&from.octets()[..], &to.octets(), &[0, protocol], &length].concat()
}

/// The internet's checksum (RFC 1071) over parts of even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2)).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn raw(protocol: i32) -> Socket {
    Socket::new(Domain::IPV4, Type::RAW, Some(protocol.into())).expect("a socket for raw packets")
}

fn send(mouth: &Socket, bytes: &[u8], to: Ipv4Addr) {
    mouth.send_to(bytes, &SocketAddrV4::new(to, 0).into()).expect("sending a raw packet");
}

/// An address of the range of a node's pods, with this last number.
pub fn pod_address(scenario: &Scenario, node: &str, last: u8) -> Ipv4Addr {
    let range = scenario.kubectl(&["get", "node", node, "--output=jsonpath={.spec.podCIDR}"]);
    let first = range.split('/').next().and_then(|first| first.parse().ok());
    beside(first.unwrap_or_else(|| panic!("{node} has the pod range {range:?}")), last)
}

/// The address with another last number.
pub fn beside(address: Ipv4Addr, last: u8) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, last)
}

fn name(namespace: &Path) -> String {
    namespace.file_name().expect("a namespace's file").to_string_lossy().into_owned()
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {arguments}: {status}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        // The example of RFC 1071, section 3.
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), (!0xddf2_u16).to_be_bytes());
        let header = packet(17, 64, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), &udp(9, b"ab"));
        assert_eq!(checksum(&[&with_sum(header)[..20]]), [0, 0]);
    }
}
