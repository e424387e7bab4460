//! A node's record of the forming, across restarts.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::message::{Membership, Progress};
use crate::cluster::pki::{self, CertificateAuthorities, MemberBundle};
use crate::intake::config::Cluster;

/// A node's record of the forming. The caller keeps it on the data disk, as a whole, readable by root alone: it holds
/// keys until the rendezvous has closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum RendezvousRecord {
    /// The node belongs to no cluster.
    #[default]
    Unformed,
    /// The first node has decided to form this cluster.
    First {
        cluster: Uuid,
        /// The bundle of each control-plane node, this one included, by node name.
        bundles: BTreeMap<String, MemberBundle>,
        /// The progress of each other node, by node name.
        progress: BTreeMap<String, Progress>,
    },
    /// This node has received its bundle from another one.
    Member {
        bundle: Box<MemberBundle>,
        /// Whether it was admitted into an existing cluster: its etcd joins that one, and no node waits for its report.
        admitted: bool,
    },
    /// A member admits one node. The caller saves an `Admission` instead of this: the member's own record is
    /// [`Self::Closed`].
    Admitting { cluster: Uuid, bundle: Box<MemberBundle>, saved: bool },
    /// Nothing is left to do. The rendezvous never opens again on this node.
    Closed { cluster: Uuid },
}

impl RendezvousRecord {
    /// The decision to form: a new cluster, its CAs, and a bundle for each control-plane node. Nothing is saved.
    ///
    /// # Errors
    /// As [`CertificateAuthorities::make`] and [`MemberBundle::make`].
    pub fn decide(config: &Cluster, first: &str, now: SystemTime) -> Result<Self, pki::Error> {
        let cluster = Uuid::new_v4();
        let authorities = CertificateAuthorities::make(now)?;
        let mut bundles = BTreeMap::new();
        for node in &config.control_nodes {
            bundles.insert(node.name.clone(), MemberBundle::make(cluster, node, &authorities, now)?);
        }
        let others = config.control_nodes.iter().filter(|node| node.name != first);
        let progress = others.map(|node| (node.name.clone(), Progress::Awaited)).collect();
        Ok(Self::First { cluster, bundles, progress })
    }

    /// Whether this node was admitted into an existing cluster.
    pub fn admitted(&self) -> bool {
        matches!(self, Self::Member { admitted: true, .. })
    }

    /// Whether this node is one of those that form a new cluster, until it knows that all have joined.
    pub fn is_forming(&self) -> bool {
        matches!(self, Self::First { .. } | Self::Member { admitted: false, .. })
    }

    /// On the first node: the names of the nodes that may still need something from it.
    pub fn awaited(&self) -> Vec<&str> {
        let Self::First { progress, .. } = self else { return Vec::new() };
        progress.iter().filter(|(_, progress)| **progress < Progress::Joined).map(|(name, _)| name.as_str()).collect()
    }

    pub fn state(&self) -> Membership {
        match self {
            Self::Unformed => Membership::Unformed,
            Self::First { cluster, .. } => Membership::Forming(*cluster),
            Self::Member { bundle, .. } => Membership::Forming(bundle.cluster),
            Self::Admitting { cluster, .. } => Membership::Admitting(*cluster),
            Self::Closed { cluster } => Membership::Formed(*cluster),
        }
    }
}
