//! The rules, in the language of nft(8).

use std::net::Ipv4Addr;

use contract::ports::{self, Caller, Port, Protocol};
use ipnet::Ipv4Net;

use super::HostPorts;
use crate::cluster::pod_network::desired::{DEVICE, PODS};
use crate::cluster::pod_network::packets::{OF_A_NODE, TO_A_NODE};
use crate::host::nftables::set;
use crate::intake::config::{Config, Worker};

/// The accepted packets.
///
/// A control-plane node trusts the other control-plane nodes by their addresses, which the configuration names. A
/// worker has only the rights of a node of the pod network. It comes and goes, and code that escapes from a pod
/// controls it. If the list of nodes has it, it reaches the tunnel and the ports that pods reach anyway. It never
/// reaches etcd, the rendezvous or VRRP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether this is a worker. On workers, nothing listens on the ports that only control-plane nodes have.
    worker: bool,
    /// The control-plane nodes that this one trusts: the others on a control-plane node, none on a worker.
    peers: Vec<Ipv4Addr>,
    /// The control-plane nodes except this one. This node's pods reach the ports for pods there.
    control_nodes: Vec<Ipv4Addr>,
    /// Held by the control-plane node that serves the API.
    virtual_address: Option<Ipv4Addr>,
    /// The port of the pod network's tunnel.
    tunnel: u16,
    /// `None` until a worker has learned it.
    pods: Option<Ipv4Net>,
    services: Option<Ipv4Net>,
    /// The networks of administrators, without overlaps. If it is empty, administrators connect from anywhere.
    administrators: Vec<Ipv4Net>,
}

/// The protocol's number (RFC 9568, section 5.1.1.4).
const VRRP: u8 = 112;

/// The callers whose TCP ports nodes and pods reach.
const WITHIN: [Caller; 2] = [Caller::NodesAndPods, Caller::AdministratorsAndNodes];

/// The callers whose TCP ports nodes reach.
const OF_NODES: [Caller; 3] = [Caller::NodesAndPods, Caller::AdministratorsAndNodes, Caller::Nodes];

impl Rules {
    pub fn of(config: &Config) -> Self {
        let network = config.network();
        let (peers, control_nodes, virtual_address) = match config {
            Config::ControlPlane(config) => {
                let peers: Vec<Ipv4Addr> = config.peers().map(|peer| peer.address).collect();
                (peers.clone(), peers, config.cluster.virtual_address)
            }
            Config::Worker(Worker { cluster, .. }) => {
                let named = cluster.learned.iter().flat_map(|said| &said.control_nodes);
                (Vec::new(), named.map(|node| node.address).collect(), Some(cluster.api_address))
            }
        };
        Self {
            worker: matches!(config, Config::Worker(_)),
            peers,
            control_nodes,
            virtual_address,
            tunnel: network.map_or(ports::VXLAN, |network| network.vxlan_port),
            pods: network.map(|network| network.pod_cidr),
            services: network.map(|network| network.service_cidr),
            administrators: Ipv4Net::aggregate(&config.node().admin_networks),
        }
    }

    pub(super) fn content(&self, host_ports: &HostPorts) -> String {
        [
            chain("prerouting", "raw", "accept", &self.prerouting()),
            chain("input", "filter", "drop", &self.input(host_ports)),
            chain("forward", "filter", "drop", &self.forward()),
        ]
        .concat()
    }

    /// A packet with the address of a node or a pod must come in on the device of the route to that address. Therefore
    /// neither a pod nor a host of a second network can pretend to be a node. Addresses of loopback and of services are
    /// not reached from outside, even if `route_localnet` and kube-proxy's rules allow it.
    fn prerouting(&self) -> Vec<String> {
        let mut insiders: Vec<Ipv4Net> = self.control_nodes.iter().copied().map(Ipv4Net::from).collect();
        insiders.extend(self.pods);
        let mut rules = vec![
            "iifname \"lo\" accept".to_owned(),
            "ip daddr 127.0.0.0/8 drop".to_owned(),
            "ip saddr 127.0.0.0/8 drop".to_owned(),
        ];
        rules.extend(self.pods.map(|pods| format!("iifname {} ip saddr != {pods} drop", pods_devices())));
        rules.extend(self.services.map(|services| format!("iifname != \"{PODS}\" ip daddr {services} drop")));
        if !insiders.is_empty() {
            rules.push(format!("ip saddr {} fib saddr . iif oif missing drop", set(&insiders)));
        }
        // A NodePort of that number would send the tunnel's packets to its pods: untracked packets are not translated.
        rules.push(format!("fib daddr type local udp dport {} notrack", self.tunnel));
        rules
    }

    /// All ports of the table of ports are decided first. Therefore neither a pod's host port nor a service with an
    /// endpoint on the node itself opens any of them.
    fn input(&self, host_ports: &HostPorts) -> Vec<String> {
        let mut rules = vec!["iifname \"lo\" accept".to_owned()];
        if let Some(peers) = self.peers() {
            // RFC 9568, section 5.1.1.3: the time to live is 255, so a forwarded packet is no router's.
            rules.push(format!("ip saddr {peers} ip protocol {VRRP} ip ttl 255 accept"));
            rules.push(format!("ip saddr {peers} udp dport {} accept", self.tunnel));
        }
        rules.push(format!("meta l4proto {VRRP} drop"));
        rules.push(format!("{} udp dport {} accept", of_a_node(), self.tunnel));
        rules.push(format!("udp dport {} drop", self.tunnel));
        rules.push("ct state established,related accept".to_owned());

        let within = self.own(&WITHIN);
        if let Some(open) = ports_of(&self.own(&[Caller::Everybody])) {
            rules.push(format!("{open} accept"));
        }
        let theirs = self.administrators_match();
        let administrated = self.own(&[Caller::Administrators, Caller::AdministratorsAndNodes]);
        rules.push(format!("{theirs}tcp dport {} accept", set(&administrated)));
        if let Some(peers) = self.peers() {
            let among_nodes = self.own(&[&OF_NODES[..], &[Caller::ControlNodes]].concat());
            rules.push(format!("ip saddr {peers} tcp dport {} accept", set(&among_nodes)));
            rules.push(format!("ip saddr {peers} udp dport {} accept", ports::MEMBERLIST));
        }
        rules.push(format!("{} tcp dport {} accept", of_a_node(), set(&self.own(&OF_NODES))));
        rules.push(format!("{} udp dport {} accept", of_a_node(), ports::MEMBERLIST));
        rules.push(format!("udp dport {} drop", ports::MEMBERLIST));
        rules.push(format!("iifname {} tcp dport {} accept", pods_devices(), set(&within)));
        rules.push(format!("tcp dport {} drop", set(&self.own(&Caller::ALL))));

        rules.push(
            "icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem } accept".into(),
        );
        rules.push("icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert } accept".into());
        rules.extend(host_ports.iter().map(|(protocol, port)| format!("{protocol} dport {port} accept")));
        // At these ports kube-proxy reports to load balancers which nodes have a service's pods.
        rules.push(format!("tcp dport {}-{} accept", ports::NODE_PORTS.start(), ports::NODE_PORTS.end()));
        // A service or a host port with its endpoint on the node itself.
        rules.push("ct status dnat accept".to_owned());
        rules
    }

    /// Packets of pods, and packets that services forward, reach other nodes with this node's address. Therefore
    /// packets that pods may not send to a node are dropped here.
    fn forward(&self) -> Vec<String> {
        let mut rules = vec!["ct state established,related accept".to_owned()];
        rules.push(format!("udp dport {} drop", self.tunnel));
        if !self.control_nodes.is_empty() {
            let others = set(&self.control_nodes);
            rules.push(format!("ip daddr {others} ip protocol {VRRP} drop"));
            rules.push(format!("iifname != \"{PODS}\" ip daddr {others} tcp dport {} drop", set(&tcp(&WITHIN))));
        }
        // With this node's address a pod's packet would come from the nodes' network, which may be the administrators'
        // too.
        let administrated = if self.administrators.is_empty() { Vec::new() } else { tcp(&[Caller::Administrators]) };
        let nodes: Vec<Ipv4Addr> = self.control_nodes.iter().copied().chain(self.virtual_address).collect();
        if !nodes.is_empty() {
            let theirs = [tcp(&[Caller::ControlNodes, Caller::Nodes]), administrated.clone()].concat();
            rules.push(format!("ip daddr {} tcp dport {} drop", set(&nodes), set(&theirs)));
            rules.push(format!("ip daddr {} udp dport {} drop", set(&nodes), ports::MEMBERLIST));
        }
        // Workers, which no configuration names.
        let to_a_node = format!("meta mark & {TO_A_NODE:#x} == {TO_A_NODE:#x}");
        let theirs = [tcp(&[Caller::Nodes]), administrated].concat();
        rules.push(format!("{to_a_node} tcp dport {} drop", set(&theirs)));
        rules.push(format!("{to_a_node} udp dport {} drop", ports::MEMBERLIST));
        rules.push(format!("iifname \"{PODS}\" accept"));
        rules.push(format!("iifname \"{DEVICE}\" oifname \"{PODS}\" accept"));
        // Packets that a service or a host port forwards. No other packet is forwarded to pods.
        rules.push("ct status dnat accept".to_owned());
        rules
    }

    fn peers(&self) -> Option<String> {
        (!self.peers.is_empty()).then(|| set(&self.peers))
    }

    /// This node's TCP ports of these callers.
    fn own(&self, callers: &[Caller]) -> Vec<u16> {
        listed(callers).filter(|port| port.on_workers || !self.worker).filter_map(|port| port.number).collect()
    }

    fn administrators_match(&self) -> String {
        if self.administrators.is_empty() {
            return String::new();
        }
        format!("ip saddr {} ", set(&self.administrators))
    }
}

/// Matches a packet of a node that the pod network knows. A packet keeps its mark when it comes out of the tunnel: then
/// it is a pod's.
fn of_a_node() -> String {
    format!("iifname != {} meta mark & {OF_A_NODE:#x} == {OF_A_NODE:#x}", pods_devices())
}

fn pods_devices() -> String {
    format!("{{ \"{PODS}\", \"{DEVICE}\" }}")
}

/// A control-plane node's TCP ports of these callers.
fn tcp(callers: &[Caller]) -> Vec<u16> {
    listed(callers).filter_map(|port| port.number).collect()
}

fn listed(callers: &[Caller]) -> impl Iterator<Item = &'static Port> {
    ports::TABLE.iter().filter(move |port| callers.contains(&port.caller) && port.protocol == Protocol::Tcp)
}

/// The match of TCP ports, if there are any.
fn ports_of(ports: &[u16]) -> Option<String> {
    (!ports.is_empty()).then(|| format!("tcp dport {}", set(ports)))
}

fn chain(hook: &str, priority: &str, policy: &str, rules: &[String]) -> String {
    let rules: String = rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
    format!("\tchain {hook} {{\n\t\ttype filter hook {hook} priority {priority}; policy {policy};\n{rules}\t}}\n")
}
