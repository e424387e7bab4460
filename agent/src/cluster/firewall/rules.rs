//! The rules, as nft(8) reads them.

use std::net::Ipv4Addr;

use contract::ports::{self, Caller, Port, Protocol};
use ipnet::Ipv4Net;

use super::HostPorts;
use crate::cluster::pod_network::desired::{DEVICE, PODS};
use crate::cluster::pod_network::packets::{OF_A_NODE, TO_A_NODE};
use crate::host::nftables::set;
use crate::intake::config::{Config, Worker};

/// What is let in.
///
/// A control node trusts the other control nodes by their addresses, which the configuration names. Nobody trusts a worker
/// more than a node of the pod network: it comes and goes, and whoever breaks out of a pod has it. It is let in where the
/// list of nodes has it, to the tunnel and to what pods reach anyway, and never to etcd, the rendezvous or VRRP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether this is a worker, where nothing listens that control nodes alone have.
    worker: bool,
    /// The control nodes that this one trusts: on a control node the others.
    peers: Vec<Ipv4Addr>,
    /// The control nodes besides this one, at which this node's pods reach what pods may.
    control_nodes: Vec<Ipv4Addr>,
    /// Of the control node that serves the API.
    virtual_address: Option<Ipv4Addr>,
    /// The port of the pod network's tunnel.
    tunnel: u16,
    /// None as long as a worker has not learned it.
    pods: Option<Ipv4Net>,
    services: Option<Ipv4Net>,
    /// Where administrators come from, no address twice; from anywhere when there is none.
    administrators: Vec<Ipv4Net>,
}

/// The protocol's number (RFC 9568, section 5.1.1.4).
const VRRP: u8 = 112;

/// Whose TCP ports nodes and pods reach.
const WITHIN: [Caller; 2] = [Caller::NodesAndPods, Caller::AdministratorsAndNodes];

/// Whose TCP ports nodes reach.
const OF_NODES: [Caller; 3] = [Caller::NodesAndPods, Caller::AdministratorsAndNodes, Caller::Nodes];

impl Rules {
    /// The rules of a node.
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

    /// A packet with the address of a node or a pod must come in on the device that leads there: neither a pod nor a host
    /// of a second network passes for a node. Addresses of loopback and of services are not reached from outside, whatever
    /// `route_localnet` and kube-proxy's rules allow.
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
        // A NodePort of that number would lead the tunnel's packets to its pods: what is not tracked is not translated.
        rules.push(format!("fib daddr type local udp dport {} notrack", self.tunnel));
        rules
    }

    /// All that the table of ports names is decided before all else: neither a pod's host port nor a service whose end is
    /// the node itself opens any of it.
    fn input(&self, host_ports: &HostPorts) -> Vec<String> {
        let mut rules = vec!["iifname \"lo\" accept".to_owned()];
        if let Some(peers) = self.peers() {
            // RFC 9568, section 5.1.1.3: the time to live is 255, so what was forwarded on the way is no router's.
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
        // Where kube-proxy tells load balancers which nodes have a service's pods.
        rules.push(format!("tcp dport {}-{} accept", ports::NODE_PORTS.start(), ports::NODE_PORTS.end()));
        // A service or a host port whose end is on the node itself.
        rules.push("ct status dnat accept".to_owned());
        rules
    }

    /// Packets of pods, and those that services send on, reach other nodes with this node's address. So what pods may not
    /// send to a node is stopped here.
    fn forward(&self) -> Vec<String> {
        let mut rules = vec!["ct state established,related accept".to_owned()];
        rules.push(format!("udp dport {} drop", self.tunnel));
        if !self.control_nodes.is_empty() {
            let others = set(&self.control_nodes);
            rules.push(format!("ip daddr {others} ip protocol {VRRP} drop"));
            rules.push(format!("iifname != \"{PODS}\" ip daddr {others} tcp dport {} drop", set(&tcp(&WITHIN))));
        }
        // With this node's address a pod would come from the nodes' network, which may be the administrators' too.
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
        // What a service or a host port sends on. Nobody else is shown the way to the pods.
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

/// A packet of a node that the pod network knows. A packet keeps the mark when it comes out of the tunnel: it is a pod's then.
fn of_a_node() -> String {
    format!("iifname != {} meta mark & {OF_A_NODE:#x} == {OF_A_NODE:#x}", pods_devices())
}

fn pods_devices() -> String {
    format!("{{ \"{PODS}\", \"{DEVICE}\" }}")
}

/// A control node's TCP ports of these callers.
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
