//! The rules, as nft(8) reads them.

use std::fmt::Display;
use std::net::Ipv4Addr;

use contract::ports::{self, Caller, Protocol};

use super::HostPorts;
use crate::cluster::pod_network::desired::{BRIDGE, DEVICE};
use crate::intake::config::Config;

/// What is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The other control nodes.
    peers: Vec<Ipv4Addr>,
    /// The port of the pod network's tunnel.
    tunnel: u16,
}

impl Rules {
    /// The rules of a node.
    pub fn of(config: &Config) -> Self {
        let control_plane = config.control_plane();
        let peers = control_plane.peers().map(|peer| peer.address).collect();
        Self { peers, tunnel: control_plane.cluster.vxlan_port }
    }

    /// What the table holds.
    pub(super) fn content(&self, host_ports: &HostPorts) -> String {
        [
            chain("prerouting", "raw", "accept", &prerouting()),
            chain("input", "filter", "drop", &self.input(host_ports)),
            chain("forward", "filter", "drop", &self.forward()),
        ]
        .concat()
    }

    /// What belongs to control nodes is decided before all else, so that nothing further down opens it: no host port of a
    /// pod, and no service whose endpoint is a node.
    fn input(&self, host_ports: &HostPorts) -> Vec<String> {
        let of_control_nodes = format!("tcp dport {}", set(&tcp(Caller::ControlNodes)));
        let mut rules = lines(&["iifname \"lo\" accept", "ct state established,related accept"]);
        if !self.peers.is_empty() {
            let peers = set(&self.peers);
            rules.push(format!("ip saddr {peers} {of_control_nodes} accept"));
            // RFC 9568, section 5.1.1.3: the time to live is 255, so what was forwarded on the way is no router's.
            rules.push(format!("ip saddr {peers} ip protocol {VRRP} ip ttl 255 accept"));
        }
        rules.push(format!("{of_control_nodes} drop"));
        rules.push(format!("meta l4proto {VRRP} drop"));
        rules.extend(lines(&[
            "icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem } accept",
            "icmpv6 type { echo-request, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept",
        ]));
        rules.push(format!("tcp dport {} accept", set(&tcp(Caller::Everybody))));
        // From which nodes: the pod network's own table says.
        rules.push(format!("meta nfproto ipv4 tcp dport {} accept", set(&tcp(Caller::Nodes))));
        rules.push(format!("meta nfproto ipv4 udp dport {} accept", self.tunnel));
        rules.extend(host_ports.iter().map(|(protocol, port)| format!("{protocol} dport {port} accept")));
        // A service or a host port whose end is on the node itself.
        rules.extend(lines(&["ct status dnat accept"]));
        rules
    }

    /// Packets of pods come to other nodes with this node's address: what pods may not say there is stopped here.
    fn forward(&self) -> Vec<String> {
        let mut rules = lines(&["ct state established,related accept"]);
        if !self.peers.is_empty() {
            let to_peers = format!("iifname \"{BRIDGE}\" ip daddr {}", set(&self.peers));
            rules.push(format!("{to_peers} tcp dport {} drop", set(&tcp(Caller::ControlNodes))));
            rules.push(format!("{to_peers} ip protocol {VRRP} drop"));
        }
        rules.extend([
            format!("iifname \"{BRIDGE}\" udp dport {} drop", self.tunnel),
            format!("iifname \"{BRIDGE}\" accept"),
            format!("iifname \"{DEVICE}\" oifname \"{BRIDGE}\" accept"),
            // What a service or a host port sends on. Nobody else is shown the way to the pods.
            "ct status dnat accept".to_owned(),
        ]);
        rules
    }
}

/// The protocol's number (RFC 9568, section 5.1.1.4).
const VRRP: u8 = 112;

/// Nothing comes to loopback from outside, whatever `route_localnet` says.
fn prerouting() -> Vec<String> {
    lines(&["iifname != \"lo\" ip daddr 127.0.0.0/8 drop", "iifname != \"lo\" ip saddr 127.0.0.0/8 drop"])
}

/// The TCP ports of a caller.
pub(in crate::cluster) fn tcp(caller: Caller) -> Vec<u16> {
    let ports = ports::TABLE.iter().filter(|port| port.caller == caller && port.protocol == Protocol::Tcp);
    ports.filter_map(|port| port.number).collect()
}

fn lines(rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| (*rule).to_owned()).collect()
}

/// An anonymous set.
pub(in crate::cluster) fn set<T: Display>(elements: &[T]) -> String {
    let elements: Vec<String> = elements.iter().map(T::to_string).collect();
    format!("{{ {} }}", elements.join(", "))
}

fn chain(hook: &str, priority: &str, policy: &str, rules: &[String]) -> String {
    let rules: String = rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
    format!("\tchain {hook} {{\n\t\ttype filter hook {hook} priority {priority}; policy {policy};\n{rules}\t}}\n")
}
