//! What is there before an upgrade: nodes, VMs, the cluster's lock and the
//! journal of an earlier upgrade. Looks, judges nothing.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::node::Node;
use serde::Serialize;
use uuid::Uuid;

use super::entry::{self, Direction, Outcome};
use super::{Hypervisor, Nodes, Vm};

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// The UID of the namespace kube-system.
    pub cluster: Uuid,
    /// The control nodes, by name.
    pub nodes: Vec<SeenNode>,
    /// All VMs of the hypervisor.
    pub vms: Vec<Vm>,
    /// Who holds the cluster's lock for upgrades now.
    pub locked_by: Option<String>,
    /// The upgrade that the cluster has a journal of.
    pub earlier: Option<Earlier>,
}

/// A control node.
#[derive(Clone, Debug, Serialize)]
pub struct SeenNode {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// What it says of itself, or why it says nothing.
    pub facts: Result<Node, String>,
}

/// An upgrade before this one.
#[derive(Clone, Debug, Serialize)]
pub struct Earlier {
    /// Its plan.
    pub id: Uuid,
    /// The way that it went last.
    pub direction: Direction,
    /// Its end, if it has one.
    pub outcome: Option<Outcome>,
}

impl Inventory {
    /// Looks at everything.
    ///
    /// # Errors
    /// When the Kubernetes API or the hypervisor does not answer. That a node does not is in the inventory.
    pub fn take(hypervisor: &dyn Hypervisor, nodes: &dyn Nodes) -> anyhow::Result<Self> {
        let mut seen: Vec<SeenNode> = nodes
            .control_nodes()?
            .into_iter()
            .map(|(name, address)| {
                let facts = nodes.facts(address).map_err(|error| format!("{error:#}"));
                SeenNode { name, address, facts }
            })
            .collect();
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        let lease = nodes.lease()?.filter(|lease| lease.is_held(SystemTime::now()));
        Ok(Self {
            cluster: nodes.cluster()?,
            nodes: seen,
            vms: hypervisor.vms()?,
            locked_by: lease.and_then(|lease| lease.holder),
            earlier: nodes.journal()?.map(|text| earlier(&text)).transpose()?,
        })
    }
}

fn earlier(text: &str) -> anyhow::Result<Earlier> {
    let entries = entry::parse(text).context(
        "reading the cluster's copy of its last upgrade's journal (ConfigMap kube-system/kaas-upgrade); \
         if another version of kaas wrote it, end that upgrade with the same version",
    )?;
    let (direction, outcome) = entry::standing(&entries);
    let id = entry::plan_of(&entries).map(|plan| plan.id).unwrap_or_default();
    Ok(Earlier { id, direction, outcome })
}
