//! The state of a cluster without its hypervisor: nodes, the holder of the deployment, and the journal of an earlier
//! upgrade. Looks, judges nothing.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use contract::node::Node;
use serde::Serialize;
use uuid::Uuid;

use super::entry::{self, Direction, Entry, Outcome};
use super::kept_copy::DiskCopy;
use super::last_upgrade::UpgradeSummary;
use super::progress::Progress;
use super::{Nodes, salvage};
use crate::control_plane::ended_with_its_cluster;
use crate::hypervisor::DiskRef;
use crate::lease::{Lease, Store, standing};

/// A cluster has as many control-plane nodes as etcd has members. The maintainers of etcd advise against more than
/// seven. Two nodes that are replaced may be listed in addition to their successors.
const MOST: usize = 9;

#[derive(Clone, Debug, Serialize)]
pub struct ClusterSeen {
    /// The UID of the namespace kube-system.
    #[serde(rename = "cluster")]
    pub id: Uuid,
    /// The cluster that the operator says is the deployment's, whichever was before.
    pub other_cluster: Option<Uuid>,
    /// The control-plane nodes, by name.
    pub nodes: Vec<SeenNode>,
    /// The present holder of the deployment.
    pub held_by: Option<String>,
    /// The last upgrade of the deployment. `None` if it has ended with a cluster which was destroyed.
    pub earlier: Option<Earlier>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SeenNode {
    pub name: String,
    /// Where its endpoint listens.
    pub address: Ipv4Addr,
    /// The node's own statements, or why it does not answer.
    pub facts: Result<Node, String>,
}

/// An upgrade before this one.
#[derive(Clone, Debug, Serialize)]
pub struct Earlier {
    /// The identifier of its plan.
    pub id: Uuid,
    /// The deployment that it was of.
    pub deployment: Uuid,
    /// The cluster that it was of.
    pub cluster: Uuid,
    /// The way that it went last.
    pub direction: Direction,
    /// Its end, if it has one.
    pub outcome: Option<Outcome>,
    /// BIOS UUIDs of the VMs that it, and those before it, have noted as the deployment's.
    #[serde(skip)]
    pub vms: BTreeSet<Uuid>,
    /// The same of data disks.
    #[serde(skip)]
    pub disks: Vec<DiskRef>,
    /// Copies of data disks that it, and those before it, have left.
    #[serde(skip)]
    pub copies: Vec<DiskCopy>,
}

impl ClusterSeen {
    /// Asks the nodes and the store. `own` is the caller's lease, which does not count as another holder.
    ///
    /// # Errors
    /// When the Kubernetes API or the store does not answer. That a node does not is part of what was seen.
    pub async fn take(nodes: &dyn Nodes, store: &dyn Store, own: Option<&Lease<'_>>) -> anyhow::Result<Self> {
        let listed = nodes.control_nodes().await?;
        // Each may take as long as a node has to answer.
        ensure!(
            listed.len() <= MOST,
            "the API lists {} control-plane nodes, and no cluster has more than {MOST}: none of them is asked",
            listed.len()
        );
        let mut seen = Vec::new();
        for (name, address) in listed {
            let facts = nodes.facts(address).await.map_err(|error| format!("{error:#}"));
            seen.push(SeenNode { name, address, facts });
        }
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        let earlier = salvage::read(store).await?.map(|entries| earlier(&entries)).transpose()?;
        let ended = ended_with_its_cluster(store).await?;
        Ok(Self {
            id: nodes.cluster().await?,
            other_cluster: None,
            nodes: seen,
            held_by: if own.is_some() { None } else { standing(store).await?.holder() },
            earlier: earlier.filter(|earlier| Some(earlier.id) != ended),
        })
    }
}

fn earlier(entries: &[Entry]) -> anyhow::Result<Earlier> {
    let plan = entry::plan_of(entries).context("a journal without a plan")?;
    let progress = Progress::of(plan, entries);
    let UpgradeSummary { id, deployment, vms, disks, copies, .. } = UpgradeSummary::of(plan, entries);
    let (direction, outcome) = (progress.direction, progress.outcome);
    Ok(Earlier { id, deployment, cluster: plan.cluster, direction, outcome, vms, disks, copies })
}
