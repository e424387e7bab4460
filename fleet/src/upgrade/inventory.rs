//! What is there before an upgrade: nodes, VMs, who is at work on the deployment, and the journal of an earlier
//! upgrade. Looks, judges nothing.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use contract::node::Node;
use serde::Serialize;
use uuid::Uuid;

use super::entry::{self, Direction, Entry, Outcome};
use super::progress::Progress;
use super::{Nodes, salvage};
use crate::authority::{Hold, Store, standing};
use crate::hypervisor::{Hypervisor, Kind, Placement, Vm};

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// The deployment that the hypervisor was asked about.
    pub deployment: Uuid,
    /// The UID of the namespace kube-system.
    pub cluster: Uuid,
    /// The cluster of which the operator says that it is the deployment's, whatever was its before.
    pub other_cluster: Option<Uuid>,
    /// The control nodes, by name.
    pub nodes: Vec<SeenNode>,
    /// The VMs that carry the deployment's stamp.
    pub vms: Vec<Vm>,
    /// All other VMs that have the BIOS UUID of one of them, or that a node says.
    pub others: Vec<Vm>,
    /// What the hypervisor does not permit, though an upgrade needs it.
    pub denied: Option<String>,
    /// Why new VMs cannot be put where they are wanted.
    pub no_place: Option<String>,
    /// Who is at work on the deployment now.
    pub held_by: Option<String>,
    /// The last upgrade of the deployment.
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
    /// The cluster that it was of.
    pub cluster: Uuid,
    /// The way that it went last.
    pub direction: Direction,
    /// Its end, if it has one.
    pub outcome: Option<Outcome>,
}

impl Inventory {
    /// Looks at everything. New VMs are to be put at `placement`; `own` is the caller's hold, which is nobody else's.
    ///
    /// # Errors
    /// When the Kubernetes API, the hypervisor or the store does not answer. That a node does not is in the inventory.
    pub async fn take(
        hypervisor: &dyn Hypervisor,
        nodes: &dyn Nodes,
        store: &dyn Store,
        placement: &Placement,
        own: Option<&Hold<'_>>,
    ) -> anyhow::Result<Self> {
        let mut seen = Vec::new();
        for (name, address) in nodes.control_nodes().await? {
            let facts = nodes.facts(address).await.map_err(|error| format!("{error:#}"));
            seen.push(SeenNode { name, address, facts });
        }
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        let vms = hypervisor.vms().await.context("reading the hypervisor's inventory")?;
        let others = others(hypervisor, &seen, &vms).await?;
        let (denied, no_place) = match hypervisor.preflight(placement).await {
            Ok(()) => (None, None),
            Err(error) if error.kind == Kind::Denied => (Some(error.to_string()), None),
            Err(error) if error.kind == Kind::Refused => (None, Some(error.to_string())),
            Err(error) => return Err(error).context("asking the hypervisor what it permits"),
        };
        let held_by = if own.is_some() { None } else { standing(store).await?.holder() };
        Ok(Self {
            deployment: hypervisor.deployment(),
            cluster: nodes.cluster().await?,
            other_cluster: None,
            nodes: seen,
            vms,
            others,
            denied,
            no_place,
            held_by,
            earlier: salvage::read(store).await?.map(|entries| earlier(&entries)).transpose()?,
        })
    }

    /// The deployment's VMs with a BIOS UUID.
    pub fn vms_of(&self, uuid: Option<Uuid>) -> Vec<&Vm> {
        self.vms.iter().filter(|vm| Some(vm.uuid()) == uuid).collect()
    }
}

/// VMs that are not the deployment's and have a BIOS UUID that matters.
async fn others(hypervisor: &dyn Hypervisor, nodes: &[SeenNode], vms: &[Vm]) -> anyhow::Result<Vec<Vm>> {
    let said = nodes.iter().filter_map(|node| node.facts.as_ref().ok()?.holder);
    let mut uuids: Vec<Uuid> = said.chain(vms.iter().map(Vm::uuid)).collect();
    uuids.sort_unstable();
    uuids.dedup();
    let mut others = Vec::new();
    for uuid in uuids {
        let found = hypervisor.with_bios_uuid(uuid).await.context("looking for a VM by its BIOS UUID")?;
        others.extend(found.into_iter().filter(|vm| vms.iter().all(|own| own.reference != vm.reference)));
    }
    Ok(others)
}

fn earlier(entries: &[Entry]) -> anyhow::Result<Earlier> {
    let plan = entry::plan_of(entries).context("a journal without a plan")?;
    let progress = Progress::of(plan, entries);
    Ok(Earlier { id: plan.id, cluster: plan.cluster, direction: progress.direction, outcome: progress.outcome })
}
