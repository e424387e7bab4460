//! The status of a cluster, for messages and for programs.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Lifecycle};
use super::inventory::{Inventory, NodeReport};
use super::next::next;
use super::replica::LeftVm;
use super::wait::Wait;
use crate::engine::{HYPERVISOR_TRANSIENT, Reason};
use crate::hypervisor::{DiskRef, PowerState, Vm, VmSize};
use crate::nodes::clean;
use crate::schema::lowercase;
use crate::upgrade::DiskCopy;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeStatus {
    pub name: String,
    pub address: Ipv4Addr,
    /// The name of its VM. `None` if it has none.
    pub vm: Option<String>,
    pub uuid: Option<Uuid>,
    pub power: Option<PowerState>,
    /// The size of its VM. `None` if the hypervisor does not report it, or the VM does not hold the data disk: the node may run
    /// in another VM then.
    pub size: Option<VmSize>,
    pub formed: bool,
    /// Whether the node is Ready in Kubernetes.
    pub ready: bool,
}

/// Describes a retained data disk in messages. It is doubtful if its removal was requested without a known result.
pub fn left_in_words(disk: &DiskRef, is_doubtful: bool) -> String {
    let doubt =
        if is_doubtful { "; its removal was asked for: it is gone, or was moved, if it is missing" } else { "" };
    format!("the data disk {} at {}{doubt}", disk.uuid, clean(&disk.path))
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeployStatus {
    pub cluster: String,
    #[serde(serialize_with = "lowercase")]
    #[schemars(with = "String")]
    pub lifecycle: Lifecycle,
    /// The image that its VMs were first created from, for messages.
    pub image: String,
    pub formed: bool,
    /// Whether VMs could be read. If not, nothing is known of them.
    pub looked: bool,
    pub nodes: Vec<NodeStatus>,
    /// Data disks that are retained and that no VM holds.
    pub left: Vec<DiskRef>,
    /// UUIDs of those among them whose removal was requested without a known result. They are gone, or elsewhere, unless they are
    /// seen at their recorded place.
    pub doubtful: Vec<Uuid>,
    /// Data disks that are no longer listed. Their removal was requested, and the operator was shown that they are missing, and
    /// confirmed it. Only the command that forgets them reports this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<DiskRef>,
    /// Data disks that no VM holds and that are yet to be removed.
    pub discarded: Vec<DiskRef>,
    /// Copies of data disks that upgrades recorded and that nothing here removes. The operator may have removed one: this is not
    /// checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<DiskCopy>,
    /// Copies of its VMs that were found, and stay when it is removed. After that, only the command that removed the other VMs
    /// reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<LeftVm>,
    /// The conditions before the run continues.
    pub waits: Vec<Wait>,
    /// Whether nothing is left to do.
    pub done: bool,
    /// VMs that are newer than the record of the cluster. A caller that trusts only the record changes none of them.
    #[serde(skip)]
    pub newer: Vec<Vm>,
    /// Former VMs of replaced nodes that have returned. The next run shuts them out: they have the addresses of their nodes.
    #[serde(skip)]
    pub returned: Vec<Vm>,
}

impl DeployStatus {
    /// The status of a cluster whose VMs could not be listed, for this reason.
    pub fn unlisted(kept: &DeploymentRecord, why: &str) -> Self {
        Self::of(kept, Err(Reason::new(HYPERVISOR_TRANSIENT, why)))
    }

    /// From the record, and the inventory or the reason for its absence.
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
            returned: seen.returned().cloned().collect(),
        }
    }
}
