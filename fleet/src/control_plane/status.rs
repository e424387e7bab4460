//! Where a cluster stands, for people and for programs.

use std::net::Ipv4Addr;

use serde::Serialize;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Lifecycle};
use super::inventory::{Inventory, NodeReport};
use super::next::next;
use super::replica::LeftVm;
use super::wait::Wait;
use crate::hypervisor::{DiskRef, PowerState, Vm, VmSize};
use crate::nodes::clean;
use crate::upgrade::{DiskCopy, Reason};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    pub name: String,
    pub address: Ipv4Addr,
    /// The name of its VM; none if it has none.
    pub vm: Option<String>,
    pub uuid: Option<Uuid>,
    pub power: Option<PowerState>,
    /// How large it is; none where the hypervisor does not say, or it does not hold the data disk: the node may run in another one then.
    pub size: Option<VmSize>,
    pub formed: bool,
    /// Whether Kubernetes has it Ready.
    pub ready: bool,
}

/// What is said of a data disk that is left, in words for people. Doubtful is one whose removal was asked for by whoever was not told what
/// came of it.
pub fn left_in_words(disk: &DiskRef, is_doubtful: bool) -> String {
    let doubt =
        if is_doubtful { "; its removal was asked for: it is gone, or was moved, if it is not there" } else { "" };
    format!("the data disk {} at {}{doubt}", disk.uuid, clean(&disk.path))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeployStatus {
    pub cluster: String,
    pub lifecycle: Lifecycle,
    /// The image that its VMs were made from at first, for people.
    pub image: String,
    pub formed: bool,
    /// Whether VMs could be looked at; where not, nothing is said of them.
    pub looked: bool,
    pub nodes: Vec<NodeStatus>,
    /// Data disks that are left and nobody holds.
    pub left: Vec<DiskRef>,
    /// UUIDs of those among them whose removal was asked for by a command that was not told what came of it: they are gone, or
    /// elsewhere, unless somebody sees them where they are named.
    pub doubtful: Vec<Uuid>,
    /// Data disks that are named no more: their removal was asked for, and that they are not there was shown and confirmed. Only the
    /// command says so that forgets them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<DiskRef>,
    /// Data disks that nobody holds and that are yet to be removed.
    pub discarded: Vec<DiskRef>,
    /// Copies of data disks that upgrades have noted and that nothing here removes. A person may have removed one: nobody looks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<DiskCopy>,
    /// Copies of its VMs that were met and stay, where it goes. Once it is gone only the command says so that has removed the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<LeftVm>,
    /// What has to happen before it goes on.
    pub waits: Vec<Wait>,
    /// Whether there is nothing left to do.
    pub done: bool,
    /// VMs that are newer than what is kept of the cluster: who goes by that alone acts on none of them.
    #[serde(skip)]
    pub newer: Vec<Vm>,
}

impl DeployStatus {
    /// From what is kept, and what was seen or why nothing was.
    pub(super) fn of(kept: &DeploymentRecord, seen: Result<&Inventory, Reason>) -> Self {
        let (looked, waits, done) = match &seen {
            Ok(seen) => {
                let next = next(kept, seen);
                (true, next.waits.clone(), next.is_done())
            }
            Err(why) => (false, vec![Wait { node: None, reason: why.clone(), lasting: false }], false),
        };
        let nothing = Inventory::default();
        let seen = seen.unwrap_or(&nothing);
        let nodes = kept.nodes.iter().map(|node| {
            // The one that holds the data disk, if there are two in an upgrade.
            let mut own: Vec<_> = seen.vms.iter().filter(|vm| node.owns(vm)).collect();
            own.sort_by_key(|vm| vm.data_disks().next().is_none());
            let vm = own.first();
            let is_ready = matches!(&seen.ready, Some(Ok(ready)) if ready.contains(&node.name));
            NodeStatus {
                name: node.name.clone(),
                address: node.address,
                vm: vm.map(|vm| vm.name.clone()),
                uuid: vm.map(|vm| vm.uuid()),
                power: vm.map(|vm| vm.power),
                size: vm.filter(|vm| vm.data_disks().next().is_some()).and_then(|vm| vm.size),
                formed: seen.said.get(&node.name) == Some(&NodeReport::Formed),
                ready: is_ready,
            }
        });
        let left: Vec<DiskRef> = kept.retained_disks.iter().filter(|disk| !seen.is_held(disk)).cloned().collect();
        Self {
            cluster: kept.cluster.clone(),
            lifecycle: kept.lifecycle,
            image: kept.image.name.clone(),
            formed: kept.formed,
            looked,
            nodes: nodes.collect(),
            doubtful: left
                .iter()
                .map(|disk| disk.uuid)
                .filter(|uuid| kept.requested_disk_deletions.contains(uuid))
                .collect(),
            left,
            forgotten: Vec::new(),
            discarded: kept.disks_to_delete.iter().filter(|disk| seen.is_free(disk)).cloned().collect(),
            copies: kept.copies.clone(),
            replicas: if kept.lifecycle == Lifecycle::Deleting { seen.left_vms() } else { Vec::new() },
            waits,
            done,
            newer: seen.newer(kept).into_iter().cloned().collect(),
        }
    }
}
