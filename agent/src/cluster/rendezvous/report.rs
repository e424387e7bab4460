//! Reports while nodes wait for each other.

use std::fmt;
use std::net::Ipv4Addr;

use contract::codes::{self, Code};
use contract::finding::{Finding, Findings};

use super::message::Difference;

/// The missing nodes and the problems. Each round makes a new report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The nodes that are not ready, in list order.
    pub waiting: Vec<AwaitedNode>,
    /// Problems for the operator. The rendezvous continues by itself once they are fixed.
    pub findings: Findings,
}

impl fmt::Display for Report {
    /// One line: `waiting for node-2 (10.0.0.12): no answer; node-3 …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, waiting) in self.waiting.iter().enumerate() {
            write!(f, "{}{waiting}", if index == 0 { "waiting for " } else { "; " })?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedNode {
    pub node: String,
    pub address: Ipv4Addr,
    pub why: WaitReason,
}

impl fmt::Display for AwaitedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.node, self.address, self.why)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No answer in time: the node is off, or a firewall drops packets.
    NoAnswer,
    /// The network reports that the node cannot be reached, with the system's words.
    Unreachable(String),
    /// The node is up and nothing listens: its agent is not ready yet, or has closed the rendezvous.
    Refused,
    /// As [`WaitReason::Refused`], and an API server answers there: the node is part of a cluster that was formed.
    Closed,
    /// One of the two sides does not hold the deployment secret, or something between them answers in the node's place.
    SecretMismatch,
    /// Something else answers, or the channel broke, with the observation.
    Strange(String),
    /// The peer introduced itself with this other name.
    Misplaced(String),
    /// This very process answers at the other node's address.
    Ourselves,
    Disagrees(Vec<Difference>),
    /// The clocks differ by this many seconds; positive when the other one is ahead.
    Clock(i64),
    /// The node belongs to a cluster, this one to none.
    InCluster,
    /// The node belongs to another cluster than this one.
    OtherCluster,
    /// The node has lost its record: it belongs to no cluster, and this node does.
    Blank,
    /// This node has lost its data after it had joined.
    Lost,
    /// The node is healthy and must do this first.
    Busy(String),
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("no answer"),
            Self::Unreachable(words) => f.write_str(words),
            Self::Refused => f.write_str("it is up, but its agent does not listen yet"),
            Self::Closed => f.write_str("it is part of a cluster already, its API server answers"),
            Self::SecretMismatch => f.write_str("the deployment secret differs"),
            Self::Strange(seen) => write!(f, "it does not answer as a control-plane node: {seen}"),
            Self::Misplaced(name) => write!(f, "{name} answers at its address"),
            Self::Ourselves => f.write_str("this node itself answers at its address"),
            Self::Disagrees(differences) => {
                for (index, difference) in differences.iter().enumerate() {
                    write!(f, "{}{difference}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Clock(seconds) if *seconds > 0 => write!(f, "its clock is {seconds} s ahead"),
            Self::Clock(seconds) => write!(f, "its clock is {} s behind", seconds.unsigned_abs()),
            Self::InCluster => f.write_str("it belongs to a cluster already"),
            Self::OtherCluster => f.write_str("it belongs to another cluster"),
            Self::Blank => f.write_str("it belongs to no cluster, though this node's was formed with it"),
            Self::Lost => f.write_str("this node had joined already and has lost its data"),
            Self::Busy(reason) => f.write_str(reason),
        }
    }
}

impl WaitReason {
    /// The reason for a node that this one has formed with. If its API server answers before its agent does, the node
    /// is only starting.
    pub(super) fn of_a_member(self) -> Self {
        if self == Self::Closed { Self::Refused } else { self }
    }

    /// The problem that the operator must fix. `None` if waiting is enough.
    pub fn finding(&self, node: &str, address: Ipv4Addr) -> Option<Finding> {
        let found =
            |code: &Code, action: &str| Some(code.finding(format!("{node} ({address})"), self.to_string(), action));
        match self {
            Self::NoAnswer | Self::Unreachable(_) | Self::Refused | Self::Busy(_) => None,
            Self::Closed | Self::InCluster | Self::OtherCluster => found(
                &codes::CLUSTER_EXISTS,
                "No second cluster is started in addition to it. If this node lost its data disk, replace the member from a \
                 living node; if the other node is a leftover, reset it",
            ),
            Self::SecretMismatch => found(
                &codes::PEER_SECRET,
                "Give every control-plane node the same deployment secret, and check that nothing else uses the address",
            ),
            Self::Strange(_) => found(
                &codes::PEER_STRANGE,
                "Check the list of control-plane nodes and that nothing else uses the address",
            ),
            Self::Misplaced(_) | Self::Ourselves => {
                found(&codes::PEERS_DISAGREE, "Check the node names and addresses in the list of control-plane nodes")
            }
            Self::Disagrees(_) => found(
                &codes::PEERS_DISAGREE,
                "Deploy the control-plane nodes from one image with the same cluster properties",
            ),
            Self::Clock(_) => {
                found(&codes::PEER_CLOCK, "Set the hosts' clocks, or give every node the same time servers")
            }
            Self::Blank => found(
                &codes::CLUSTER_EXISTS,
                "It lost its data disk: replace the member from a living node, or reset all control-plane nodes",
            ),
            Self::Lost => {
                found(&codes::MEMBER_LOST, "Replace the member from a living node: it cannot come back by itself")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_problems_for_the_operator_are_findings() {
        let address = Ipv4Addr::new(10, 0, 0, 12);
        let code = |why: WaitReason| why.finding("cp-2", address).map(|finding| finding.code);
        let table = [
            (WaitReason::NoAnswer, None),
            (WaitReason::Unreachable("no route".into()), None),
            (WaitReason::Refused, None),
            (WaitReason::Busy("it has not met all the others yet".into()), None),
            (WaitReason::Closed, Some("cluster.exists")),
            (WaitReason::InCluster, Some("cluster.exists")),
            (WaitReason::OtherCluster, Some("cluster.exists")),
            (WaitReason::Blank, Some("cluster.exists")),
            (WaitReason::SecretMismatch, Some("peer.secret-mismatch")),
            (WaitReason::Strange("it ended the connection".into()), Some("peer.strange")),
            (WaitReason::Misplaced("cp-3".into()), Some("peers.disagree")),
            (WaitReason::Ourselves, Some("peers.disagree")),
            (WaitReason::Disagrees(Vec::new()), Some("peers.disagree")),
            (WaitReason::Clock(-1801), Some("peer.clock")),
            (WaitReason::Lost, Some("member.lost")),
        ];
        for (why, expected) in table {
            assert_eq!(code(why.clone()).as_deref(), expected, "{why:?}");
        }
    }
}
