//! The messages between control-plane nodes once both have proved the
//! deployment secret.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::pki::MemberBundle;
use crate::intake::config::ControlPlane;

/// The version of this protocol. It is one of the [`Facts`], so that a
/// difference is named like any other.
const PROTOCOL: u32 = 4;

/// How far a node's forming has come, as it tells others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "cluster")]
pub enum Membership {
    /// It belongs to no cluster, and nothing is under way that would change that.
    Unformed,
    /// It belongs to no cluster yet; a bundle may be on its way to it.
    Receiving,
    /// It is, or is about to be, a member of this cluster.
    Forming(Uuid),
    /// It has joined this cluster.
    Formed(Uuid),
    /// It is a member of this cluster, whose members admit the node that it talks to.
    Admitting(Uuid),
}

impl Membership {
    /// The cluster that the node belongs to.
    pub fn cluster(self) -> Option<Uuid> {
        match self {
            Self::Unformed | Self::Receiving => None,
            Self::Forming(cluster) | Self::Formed(cluster) | Self::Admitting(cluster) => Some(cluster),
        }
    }
}

/// How far the first node knows another one to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// It has not confirmed its bundle.
    Awaited,
    /// It has saved its bundle.
    HandedOver,
    /// The cluster's store has a record that it has joined, or it was removed as a member. It no longer gets a bundle.
    Joined,
}

/// A fact's name in the protocol. Other versions compare it, so that it stays.
const CONTROL_NODES: &str = concat!("control", " nodes");
/// A fact's name in the protocol. Other versions compare it, so that it stays.
const KUBERNETES_MINOR: &str = concat!("Kubernetes", " minor");

/// The values on which all control-plane nodes must agree before a cluster is
/// formed, by readable names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    /// The facts of a configuration. `image` names the appliance image and the
    /// Kubernetes version that it forms with.
    pub fn of(config: &ControlPlane, image: &str) -> Self {
        let cluster = &config.cluster;
        let nodes: Vec<_> =
            cluster.control_nodes.iter().map(|node| format!("{}={}", node.name, node.address)).collect();
        let address = cluster.virtual_address.map_or_else(|| "none".to_owned(), |address| address.to_string());
        Self(
            [
                ("protocol", PROTOCOL.to_string()),
                ("image", image.to_owned()),
                ("role", config.role.to_string()),
                ("cluster name", cluster.name.clone()),
                (CONTROL_NODES, nodes.join(",")),
                ("virtual IP", address),
                ("pod CIDR", cluster.pod_cidr.to_string()),
                ("prefix length of a node's pods", cluster.node_prefix.to_string()),
                ("service CIDR", cluster.service_cidr.to_string()),
                ("VXLAN port", cluster.vxlan_port.to_string()),
                (KUBERNETES_MINOR, cluster.kubernetes_minor.clone()),
                ("pod security", cluster.pod_security.to_string()),
                ("add-ons", cluster.add_ons.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        )
    }

    /// Where `theirs` differs, in a stable order.
    pub fn differences(&self, theirs: &Facts) -> Vec<Difference> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(theirs.0.keys()).collect();
        let value = |facts: &Facts, name: &str| facts.0.get(name).map_or("not known", String::as_str).to_owned();
        names
            .into_iter()
            .filter(|name| self.0.get(*name) != theirs.0.get(*name))
            .map(|name| Difference { fact: name.clone(), ours: value(self, name), theirs: value(theirs, name) })
            .collect()
    }
}

/// A fact on which two nodes differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub fact: String,
    /// This node's value.
    pub ours: String,
    /// The other node's value.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fact = match self.fact.as_str() {
            CONTROL_NODES => "list of control-plane nodes",
            KUBERNETES_MINOR => "minor version of Kubernetes",
            fact => fact,
        };
        write!(f, "its {fact} is {}, here it is {}", self.theirs, self.ours)
    }
}

/// How a node introduces itself: the first message in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its name in the list of control-plane nodes.
    pub node: String,
    /// Drawn at each start: a node that meets its own number is talking to itself.
    pub instance: Uuid,
    /// How far its forming has come.
    pub state: Membership,
    pub facts: Facts,
    /// Its clock, in seconds since 1970.
    pub clock: u64,
    /// How far it knows the other side to be; said by the first node alone.
    pub yours: Option<Progress>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum PeerRequest {
    Bundle,
    /// Nothing: the asking node has saved the bundle of this cluster.
    Saved {
        cluster: Uuid,
    },
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
pub enum Reply {
    /// The asking node's bundle.
    Bundle {
        /// To be saved before anything else is done.
        bundle: Box<MemberBundle>,
    },
    /// The request is on record.
    Noted,
    /// Not now: ask again.
    Wait {
        /// Why, for the operator.
        reason: String,
    },
}
