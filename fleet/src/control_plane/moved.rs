//! Finds the cluster's VMs that were moved out of the searched folders, before anything is done.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::deployment_record::{Lifecycle, Node};
use super::look::is_of_one;
use super::records;
use super::upgraded::Upgraded;
use crate::hypervisor::{Hypervisor, Vm};
use crate::lease::Store;

/// VMs that the deployment or its last upgrade recorded, that carry the stamp of one of its nodes, and that are not in `shown`.
/// No VM is searched for a node that has a VM with a data disk in `shown`. A VM with other disks than the cluster's is a copy,
/// such as one that a backup restored, and is ignored.
pub async fn moved(hypervisor: &dyn Hypervisor, store: &dyn Store, shown: &[Vm]) -> anyhow::Result<Vec<Vm>> {
    let deployment = hypervisor.deployment();
    let kept = records::read(store).await?;
    let Some(kept) = kept.filter(|kept| kept.lifecycle != Lifecycle::Deleted && kept.is_of(deployment).is_ok()) else {
        return Ok(Vec::new());
    };
    let is_shown = |node: &Node| shown.iter().any(|vm| node.owns(vm) && vm.data_disks().next().is_some());
    let lost: Vec<&Node> = kept.nodes.iter().filter(|node| !is_shown(node)).collect();
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let upgraded = Upgraded::find(store, deployment, Some(&kept)).await?.own;
    let swapped = upgraded.iter().flat_map(|noted| noted.vms.iter().copied());
    let made: BTreeSet<Uuid> = kept.nodes.iter().filter_map(|node| node.bios_uuid).chain(swapped).collect();
    let mut moved = Vec::new();
    for uuid in made.into_iter().filter(|uuid| !shown.iter().any(|vm| vm.uuid() == *uuid)) {
        let found = hypervisor.with_bios_uuid(uuid).await?;
        moved.extend(found.into_iter().filter(|vm| is_of_one(&lost, vm, deployment, &kept, upgraded.as_ref())));
    }
    Ok(moved)
}
