//! The state before an upgrade: the cluster, and the VMs that it runs in. Looks, judges nothing.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::bios_uuid::BiosUuid;
use serde::Serialize;
use uuid::Uuid;

use super::cluster_seen::ClusterSeen;
use super::reason::DISK_HELD;
use super::refusal::VM_BESIDE;
use super::{Nodes, moved};
use crate::hypervisor::{ErrorKind, Hypervisor, Placement, Result, Vm, uuids_of};
use crate::lease::{Lease, Store};

#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// The deployment that the hypervisor was asked about.
    pub deployment: Uuid,
    #[serde(flatten)]
    pub cluster: ClusterSeen,
    /// The VMs that carry the deployment's stamp.
    pub vms: Vec<Vm>,
    /// All other VMs that have the BIOS UUID of one of them, or that a node says, or an earlier upgrade has noted.
    pub others: Vec<Vm>,
    /// Where those of the others are, by BIOS UUID, that carry the deployment's stamp. They were moved to where its VMs
    /// are not looked for.
    pub moved: BTreeMap<Uuid, String>,
    /// Why the data disks of VMs that nodes run in could be given to no other VM, by BIOS UUID: codes and words. Empty
    /// if something is denied.
    pub kept: BTreeMap<Uuid, Vec<(&'static str, String)>>,
    /// A privilege that an upgrade needs and the hypervisor does not grant.
    pub denied: Option<String>,
    /// Why new VMs cannot be put where they are wanted.
    pub no_place: Option<String>,
}

impl Inventory {
    /// Looks at everything. New VMs are to be put at `placement`. `own` is the caller's lease, which does not count as
    /// another holder.
    ///
    /// # Errors
    /// When the Kubernetes API, the hypervisor or the store does not answer. That a node does not is in the inventory.
    pub async fn take(
        hypervisor: &dyn Hypervisor,
        nodes: &dyn Nodes,
        store: &dyn Store,
        placement: &Placement,
        own: Option<&Lease<'_>>,
    ) -> anyhow::Result<Self> {
        let cluster = ClusterSeen::take(nodes, store, own).await?;
        let vms = hypervisor.vms().await.context("reading the hypervisor's inventory")?;
        let others = others(hypervisor, &cluster, &vms).await?;
        let mut places = BTreeMap::new();
        for vm in others.iter().filter(|vm| vm.is_of(hypervisor.deployment())) {
            places.insert(vm.uuid(), moved::place(vm, &hypervisor.may_be_stamped(vm).await));
        }
        let (mut denied, mut no_place) = (None, None);
        // A missing place does not show which privileges are missing.
        for permitted in [hypervisor.preflight(placement).await, hypervisor.may_change_own().await] {
            match permitted {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Denied => denied = denied.or(Some(error.to_string())),
                Err(error) if error.kind == ErrorKind::Refused => no_place = no_place.or(Some(error.to_string())),
                Err(error) => return Err(error).context("asking the hypervisor what it permits"),
            }
        }
        // Missing read privileges are in `denied`.
        let mut kept = BTreeMap::new();
        if denied.is_none() {
            for vm in running(&cluster, &vms) {
                let refusals: Result<_> = disk_refusals(hypervisor, vm).await.into_iter().collect();
                kept.insert(vm.uuid(), refusals.context("reading the path of a data disk and the VMs that hold it")?);
            }
        }
        Ok(Self { deployment: hypervisor.deployment(), cluster, vms, others, moved: places, kept, denied, no_place })
    }

    /// The deployment's VMs with the BIOS UUID that a guest reports.
    pub fn vms_of(&self, guest: Option<BiosUuid>) -> Vec<&Vm> {
        self.vms.iter().filter(|vm| vm.is_named(guest)).collect()
    }
}

/// The VMs that nodes run in. Obstacles to giving their data disks away are reported for all of them before any is off.
fn running<'v>(cluster: &ClusterSeen, vms: &'v [Vm]) -> Vec<&'v Vm> {
    let holders: Vec<BiosUuid> = cluster.nodes.iter().filter_map(|node| node.facts.as_ref().ok()?.holder).collect();
    vms.iter().filter(|vm| holders.iter().any(|holder| vm.is_named(Some(*holder)))).collect()
}

/// Why the data disk of a VM may not be given to another VM, with the codes.
pub(super) async fn disk_refusals(hypervisor: &dyn Hypervisor, vm: &Vm) -> Vec<Result<(&'static str, String)>> {
    let judged = [(VM_BESIDE, hypervisor.may_be_replaced(vm).await), (DISK_HELD, hypervisor.is_sole_holder(vm).await)];
    let refusal = |(code, judged): (_, Result<()>)| match judged {
        Ok(()) => None,
        Err(error) if error.kind == ErrorKind::Refused => Some(Ok((code, error.to_string()))),
        Err(error) => Some(Err(error)),
    };
    judged.into_iter().filter_map(refusal).collect()
}

/// VMs that are not shown as the deployment's and have a BIOS UUID that matters.
async fn others(hypervisor: &dyn Hypervisor, cluster: &ClusterSeen, vms: &[Vm]) -> anyhow::Result<Vec<Vm>> {
    let said = cluster.nodes.iter().filter_map(|node| node.facts.as_ref().ok()?.holder).flat_map(uuids_of);
    let earlier = cluster.earlier.iter().filter(|earlier| earlier.cluster == cluster.id);
    let noted = earlier.flat_map(|earlier| earlier.vms.iter().copied());
    let mut uuids: Vec<Uuid> = said.chain(noted).chain(vms.iter().map(Vm::uuid)).collect();
    uuids.sort_unstable();
    uuids.dedup();
    let mut others = Vec::new();
    for uuid in uuids {
        let found = hypervisor.with_bios_uuid(uuid).await.context("looking for a VM by its BIOS UUID")?;
        others.extend(found.into_iter().filter(|vm| vms.iter().all(|own| own.reference != vm.reference)));
    }
    Ok(others)
}
