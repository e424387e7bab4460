//! Checks whether the servers in this node's network settings answer: the gateway, DNS and time servers, the other
//! control-plane nodes. A network may work without most of them. Therefore all findings are warnings, and the checks
//! are repeated as long as the node runs.
//!
//! [`judge`] is pure. [`look`] asks all of them at the same time, and takes a few seconds if something does not answer.

mod blank;
mod questions;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;

use contract::codes::{self, Code};
use contract::finding::Findings;
use contract::ports;
use contract::properties;
use contract::properties::ControlNode;

pub use blank::existing_cluster;

use crate::host::at_once;
use crate::intake::config::Config;
use crate::system::network;

/// The result of a check. The error describes the failure.
pub type Answer = Result<(), String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    pub gateway: Option<(Ipv4Addr, Answer)>,
    pub dns: Vec<(Ipv4Addr, Answer)>,
    /// Time servers, by name or address.
    pub time: Vec<(String, Answer)>,
    /// The other control-plane nodes.
    pub peers: Vec<(ControlNode, Answer)>,
}

/// Asks all of them. The other control-plane nodes are asked only if `peers` is true: it means that they should be up.
pub fn look(config: &Config, peers: bool) -> Reachability {
    let node = config.node();
    let gateway = config.address().zip(node.interfaces[0].gateway);
    let gateway = || gateway.map(|(own, gateway)| (gateway, network::neighbour_answers(own, gateway)));
    let dns = || at_once::ask(node.dns_servers.iter().copied(), |one| questions::dns(SocketAddrV4::new(*one, 53)));
    let time = || at_once::ask(node.time_servers(), |server| questions::time(server));
    let others = || {
        let others = config.peers().filter(|_| peers).cloned();
        at_once::ask(others, |peer| questions::reachable(SocketAddrV4::new(peer.address, ports::API)))
    };
    thread::scope(|scope| {
        let (gateway, dns, time) = (scope.spawn(gateway), scope.spawn(dns), scope.spawn(time));
        let peers = others();
        Reachability { gateway: at_once::join(gateway), dns: at_once::join(dns), time: at_once::join(time), peers }
    })
}

pub fn judge(seen: &Reachability) -> Findings {
    let mut findings = Findings::default();
    let mut say = |code: &Code, subject: &str, who: String, answer: &Answer, action: &str| {
        if let Err(what) = answer {
            findings.push(code.finding(subject, format!("{who}: {what}"), action));
        }
    };
    if let Some((address, answer)) = &seen.gateway {
        say(
            &codes::GATEWAY_SILENT,
            properties::GATEWAY,
            address.to_string(),
            answer,
            "Correct the gateway, or the network that the VM's adapter is connected to",
        );
    }
    for (address, answer) in &seen.dns {
        say(
            &codes::DNS_SILENT,
            properties::DNS_SERVERS,
            address.to_string(),
            answer,
            "Correct the DNS servers, or leave them empty in a network without DNS",
        );
    }
    for (server, answer) in &seen.time {
        say(
            &codes::NTP_SILENT,
            properties::NTP_SERVERS,
            server.clone(),
            answer,
            "Correct the time servers; without one the VM follows the clock of its host",
        );
    }
    for (peer, answer) in &seen.peers {
        say(
            &codes::PEER_UNREACHABLE,
            properties::CONTROL_NODES,
            format!("{} ({})", peer.name, peer.address),
            answer,
            "Power it on, or fix the network between the control-plane nodes",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silent_servers_are_reported() {
        let silent: Answer = Err("no answer".to_owned());
        let one = Ipv4Addr::new(10, 0, 0, 1);
        let peer = ControlNode { name: "cp2".into(), address: Ipv4Addr::new(10, 0, 0, 12) };
        let mut seen = Reachability {
            gateway: Some((one, Ok(()))),
            dns: vec![(one, Ok(()))],
            time: vec![("ntp.example".into(), Ok(()))],
            peers: vec![(peer.clone(), Ok(()))],
        };
        assert!(judge(&seen).is_empty());
        assert!(judge(&Reachability::default()).is_empty(), "an island has none of them");
        seen = Reachability {
            gateway: Some((one, silent.clone())),
            dns: vec![(one, Ok(())), (Ipv4Addr::new(10, 0, 0, 2), silent.clone())],
            time: vec![("ntp.example".into(), silent.clone())],
            peers: vec![(peer, silent)],
        };
        let findings = judge(&seen);
        let said: Vec<String> =
            findings.iter().map(|one| format!("{} {} {}", one.code, one.subject, one.seen)).collect();
        assert_eq!(
            said,
            [
                "gateway.no-answer gateway 10.0.0.1: no answer",
                "dns-servers.no-answer dns-servers 10.0.0.2: no answer",
                "ntp-servers.no-answer ntp-servers ntp.example: no answer",
                "peer.unreachable control-nodes cp2 (10.0.0.12): no answer",
            ]
        );
        assert!(!findings.has_errors());
    }
}
