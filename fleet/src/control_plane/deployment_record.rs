//! The record of what was begun for a cluster. It is saved before anything follows from it, and contains no secrets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use contract::deployer::Fingerprint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::replacement_record::Replacement;
use crate::hypervisor::{DiskRef, Place, Stamp, Vm, VmRef};
use crate::schema;
use crate::upgrade::{DiskCopy, UpgradeSummary};
use crate::workers::Image;

/// The lifecycle of control-plane nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Lifecycle {
    /// The nodes are created, and run.
    #[default]
    Active,
    /// The nodes are being removed.
    Deleting,
    /// The nodes were removed.
    Deleted,
}

/// In place of a disk's UUID if the node's own disk is unknown. No disk has it.
pub(super) const NONE_KNOWN: Uuid = Uuid::nil();

/// A control-plane node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name of the node, and of the first VM that is created for it.
    #[schemars(schema_with = "schema::label")]
    pub name: String,
    /// IPv4 address of the node.
    #[schemars(schema_with = "schema::ipv4")]
    pub address: Ipv4Addr,
    /// Keyed hash of the settings that its VM is created with.
    #[schemars(schema_with = "schema::word")]
    pub settings_hash: String,
    /// Keyed hash of the deployment secret in the OVF properties of its VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub secret_hash: Option<String>,
    /// BIOS UUID for its VM, recorded before the VM is created: it identifies an incomplete VM. A stamp alone proves nothing: each
    /// account that may change a VM's settings can write one.
    #[serde(default, rename = "allocatedUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub allocated_uuid: Option<Uuid>,
    /// BIOS UUID of its VM, once the VM is complete.
    #[serde(default, rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub bios_uuid: Option<Uuid>,
    /// Whether that VM was ever powered on. From then on its data disk holds data of the cluster.
    #[serde(default)]
    pub ever_powered_on: bool,
    /// UUID of the data disk that its VM was created with. Recorded before the VM is first powered on, or before an incomplete VM
    /// releases the disk. Image swaps move this disk from VM to VM. Other disks of a VM were attached by other clients. All digits
    /// are 0 if the VM did not hold exactly one data disk then: no later disk is taken for its own.
    #[serde(default, rename = "dataDisk", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub disk: Option<Uuid>,
}

/// A VM that the operator adopted for deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedVm {
    /// BIOS UUID of the VM.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "schema::uuid")]
    pub bios_uuid: Uuid,
    /// UUIDs of the data disks that the VM held then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::uuids")]
    pub disks: Vec<Uuid>,
    /// Whether the adoption belongs to an earlier removal. Then its disks are the cluster's, and the VM is deleted only after
    /// another adoption: its purpose may have changed.
    #[serde(default)]
    pub earlier: bool,
}

/// The record of the control-plane nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentRecord {
    /// Name of the cluster.
    #[schemars(schema_with = "schema::label")]
    pub cluster: String,
    /// The deployment ID in the stamp of the cluster's VMs.
    #[serde(default, rename = "id", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub deployment: Option<Uuid>,
    /// Whether the nodes run, or are being removed.
    pub lifecycle: Lifecycle,
    /// The image of their first VMs. Upgrades do not change it.
    pub image: Image,
    /// The control-plane nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), transform = schema::keyed(&["name"]))]
    pub nodes: Vec<Node>,
    /// Whether the nodes have formed a cluster. From then on no VM is created for it: the other nodes replace a node that lost
    /// its VM.
    #[serde(default)]
    pub formed: bool,
    /// Fingerprint of the cluster's CA, as all nodes showed it when they formed the cluster. A node with another CA is not
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub ca_fingerprint: Option<Fingerprint>,
    /// Fingerprint of the deployer's key in the OVF properties of the VMs. Once the cluster has formed: of the last key that a
    /// node admitted. Its nodes may have been given another key since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub deployer_fingerprint: Option<Fingerprint>,
    /// The replacement of a lost node that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// BIOS UUIDs of the former VMs of replaced nodes. A VM that returns is disconnected, powered off and given up. Its data disk
    /// stays.
    #[serde(default, rename = "replacedVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::uuids")]
    pub replaced_vms: Vec<Uuid>,
    /// Whether data disks are deleted with the cluster.
    #[serde(default)]
    pub removes_disks: bool,
    /// VMs that are deleted with the cluster because the operator adopted them.
    #[serde(default, rename = "adoptedVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = schema::keyed(&["biosUUID"]))]
    pub adopted_vms: Vec<AdoptedVm>,
    /// The last upgrade before the cluster was deleted. It ended with the cluster. A later upgrade is of VMs that replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub upgrade: Option<Uuid>,
    /// Disks that are kept. Recorded before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub retained_disks: Vec<DiskRef>,
    /// Disks that are deleted once no VM holds them. Recorded before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub disks_to_delete: Vec<DiskRef>,
    /// UUIDs of disks whose deletion was requested. Recorded before the last check and the request: a disk that is missing later
    /// was deleted or moved. Only a command that got the response knows which. Disks that were deleted with the cluster stay
    /// recorded, because the journal of an upgrade still leads to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::removals")]
    pub requested_disk_deletions: Vec<Uuid>,
    // An object has none: a controller's image swap makes no copies.
    /// Copies of data disks that upgrades left, recorded once the cluster is to be removed. When the journals of its upgrades are
    /// gone, nothing else names them. None of them is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub copies: Vec<DiskCopy>,
    /// VMs whose removal was requested while the cluster is deleted. Another VM with such a BIOS UUID is a copy. Once the cluster
    /// is gone, also its other VMs, with an empty `id`.
    #[serde(default, rename = "deletingVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub deleting_vms: Vec<VmRef>,
    /// Where VMs were last seen, by BIOS UUID: VMs that nodes were created in, that the last upgrade knows, or that the operator
    /// adopted. While a file of a VM exists, a VM that the vCenter does not show may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        with = "BTreeMap<String, Place>",
        extend("maxProperties" = 64, "x-kubernetes-validations" = schema::by_vm())
    )]
    pub places: BTreeMap<Uuid, Place>,
}

/// The journal is of another deployment than the described one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal here is {whose} of the deployment {noted}, and what is described is the deployment {here}: nothing was changed. \
     If these are two clusters, give this one a separate journal; if it is the same one, and something of its description was \
     renamed, name the deployment {noted}"
)]
pub struct OtherDeployment {
    /// The owner of the journal, for messages.
    pub whose: String,
    pub noted: Uuid,
    /// The described deployment.
    pub here: Uuid,
}

impl Node {
    /// The data disk that is known to be its own.
    pub fn own_disk(&self) -> Option<Uuid> {
        self.disk.filter(|disk| *disk != NONE_KNOWN)
    }

    pub(super) fn stamp(&self, deployment: Uuid) -> Stamp {
        Stamp { deployment, node: self.name.clone(), swap: None }
    }

    /// BIOS UUID of the VM that was created for it, or was to be.
    pub(super) fn noted(&self) -> Option<Uuid> {
        self.bios_uuid.or(self.allocated_uuid)
    }

    /// Whether a VM with this BIOS UUID was created for it, or was to be.
    pub(super) fn has_noted(&self, uuid: Uuid) -> bool {
        self.bios_uuid == Some(uuid) || self.allocated_uuid == Some(uuid)
    }

    /// Whether a VM is stamped as this node's, whatever image it has.
    pub(super) fn owns(&self, vm: &Vm) -> bool {
        vm.stamp.as_ref().is_some_and(|stamp| stamp.node == self.name)
    }
}

impl DeploymentRecord {
    /// Refuses a journal of another deployment: another file leads to it, or a name that identifies the deployment was changed.
    /// The VMs that are seen here are not its VMs.
    pub(super) fn is_of(&self, deployment: Uuid) -> Result<(), OtherDeployment> {
        match self.deployment {
            Some(noted) if noted != deployment => {
                Err(OtherDeployment { whose: format!("that of the cluster {}", self.cluster), noted, here: deployment })
            }
            _ => Ok(()),
        }
    }

    /// Whether an operator named a VM for removal in this command.
    pub(super) fn is_granted(&self, vm: Uuid) -> bool {
        self.adopted_vms.iter().any(|granted| granted.bios_uuid == vm && !granted.earlier)
    }

    /// Whether a disk is the cluster's: a node was created with it, or a VM that an operator named for removal held it.
    pub(super) fn is_own_disk(&self, disk: Uuid) -> bool {
        self.nodes.iter().any(|node| node.own_disk() == Some(disk))
            || self.adopted_vms.iter().any(|vm| vm.disks.contains(&disk))
    }

    /// The record once a node's VM is on, or is about to be: its disks are in use from then on. A recorded own disk stays. A
    /// retained disk is not the node's own. A disk that was to be removed with an earlier incomplete VM is not either.
    #[must_use]
    pub(super) fn starting(&self, node: Node, vm: &Vm) -> Self {
        let mut held = vm.data_disks().map(|disk| disk.reference.uuid);
        let only = held.next().filter(|_| held.next().is_none());
        let is_anothers =
            |disk: &Uuid| self.retained_disks.iter().chain(&self.disks_to_delete).any(|noted| noted.uuid == *disk);
        let own = only.filter(|disk| !is_anothers(disk)).unwrap_or(NONE_KNOWN);
        self.with(Node { ever_powered_on: true, disk: node.disk.or(Some(own)), ..node })
    }

    /// The record after a VM was seen on: its disks are in use. `None` if nothing changes.
    ///
    /// An incomplete VM is still created again. Its disks are retained, as are disks that were to be removed, whichever VM holds
    /// them. If a complete VM has another stamp than at its creation, or was copied, it is unknown which disk is its own. Such a
    /// VM does not prove where a disk is now either.
    pub(super) fn seen_on(&self, vm: &Vm, is_alone: bool) -> Option<Self> {
        let is_its = |node: &&Node| node.has_noted(vm.uuid()) && !node.ever_powered_on;
        let (mut kept, node) = (self.clone(), self.nodes.iter().find(is_its));
        if let Some(node) = node.filter(|node| node.bios_uuid.is_some()).cloned() {
            kept = match is_alone && node.owns(vm) {
                true => self.starting(node, vm),
                false => self.with(Node { ever_powered_on: true, disk: node.disk.or(Some(NONE_KNOWN)), ..node }),
            };
        }
        let is_half = node.is_some_and(|node| node.bios_uuid.is_none());
        for now in vm.data_disks().map(|disk| &disk.reference) {
            kept = match self.disks_to_delete.iter().find(|disk| disk.uuid == now.uuid) {
                Some(disk) if is_alone => kept.hung(disk, now),
                Some(disk) => kept.leaving(disk),
                None if is_half && !self.retained_disks.iter().any(|left| left.uuid == now.uuid) => kept.leaving(now),
                None => kept,
            };
        }
        (kept != *self).then_some(kept)
    }

    /// The record with the present places of VMs, without those of VMs that an upgrade has destroyed. The datastores of new
    /// places are not known yet.
    pub(super) fn placed(&self, vms: &[Vm], upgraded: Option<&UpgradeSummary>) -> Self {
        let mut kept = self.clone();
        let is_removed = |vm: &Uuid| upgraded.is_some_and(|noted| noted.removed.contains(vm));
        kept.places.retain(|vm, _| !is_removed(vm));
        for vm in vms {
            let is_made = kept.nodes.iter().any(|node| node.bios_uuid == Some(vm.uuid()) && node.owns(vm));
            let is_swapped = upgraded.is_some_and(|noted| noted.vms.contains(&vm.uuid()));
            let is_named = kept.adopted_vms.iter().any(|granted| granted.bios_uuid == vm.uuid());
            let is_known = (is_made || is_swapped || is_named) && !is_removed(&vm.uuid());
            let is_only = vms.iter().filter(|other| other.uuid() == vm.uuid()).count() == 1;
            let Some(settings) = vm.settings.clone().filter(|_| is_known && is_only) else { continue };
            let data_disk = only_data_disk(vm).cloned();
            match kept.places.get_mut(&vm.uuid()).filter(|place| place.settings == settings) {
                // A disk that was detached may be lost, or in another VM: its place stays recorded.
                Some(place) => place.data_disk = data_disk.or(place.data_disk.take()),
                None => {
                    let node = vm.stamp.as_ref().map_or(&vm.name, |stamp| &stamp.node).clone();
                    kept.places.insert(vm.uuid(), Place { node, settings, datastore: None, data_disk });
                }
            }
        }
        kept
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Whether a VM is yet to be created, if `vms` are those with the deployment's stamp. False for a node whose VM was on. Once
    /// the cluster has formed, only a replacement creates VMs.
    pub(super) fn makes(&self, vms: &[Vm]) -> bool {
        let lacks = |node: &Node| node.bios_uuid.is_none() || !vms.iter().any(|vm| node.owns(vm));
        let replaces = self.replacement.as_ref().is_some_and(|open| open.admitted.is_none());
        replaces || (!self.formed && self.nodes.iter().any(|node| !node.ever_powered_on && lacks(node)))
    }

    /// The record with the removal of a disk that is about to be requested.
    #[must_use]
    pub(super) fn removing(&self, disk: &DiskRef) -> Self {
        let mut kept = self.not_removing(disk);
        kept.requested_disk_deletions.push(disk.uuid);
        kept
    }

    /// The record with the removal of a VM that is about to be requested.
    #[must_use]
    pub(super) fn destroying(&self, vm: &VmRef) -> Self {
        let mut kept = self.clone();
        if !kept.deleting_vms.contains(vm) {
            kept.deleting_vms.push(vm.clone());
        }
        kept
    }

    /// The record after a disk was seen at its recorded place, and all earlier requests have ended: its removal did not happen.
    #[must_use]
    pub(super) fn not_removing(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.requested_disk_deletions.retain(|uuid| *uuid != disk.uuid);
        kept
    }

    /// Disks that are retained or yet to be removed, and whose removal was requested without a known result.
    pub(super) fn in_doubt(&self) -> Vec<DiskRef> {
        let noted = self.disks_to_delete.iter().chain(&self.retained_disks);
        noted.filter(|disk| self.requested_disk_deletions.contains(&disk.uuid)).cloned().collect()
    }

    /// The record after a disk was removed.
    #[must_use]
    pub(super) fn removed(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.disks_to_delete.retain(|other| other != disk);
        // While a cluster is created, only blank disks are removed. No other record leads to them.
        if self.lifecycle == Lifecycle::Active {
            kept.requested_disk_deletions.retain(|uuid| *uuid != disk.uuid);
        }
        kept
    }

    /// The record with a disk retained that would be removed otherwise. The disk is not at its recorded place and may be
    /// elsewhere, because its removal is not confirmed. Or it was not shown as one to remove. A recorded removal request stays.
    #[must_use]
    pub(super) fn leaving(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.disks_to_delete.retain(|other| other != disk);
        if !kept.retained_disks.contains(disk) {
            kept.retained_disks.push(disk.clone());
        }
        kept
    }

    /// The record without a missing disk whose removal was requested, after the operator was shown this and confirmed it. The
    /// removal request stays recorded, because an upgrade's journal still leads to the disk.
    #[must_use]
    pub(super) fn forgetting(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        for noted in [&mut kept.retained_disks, &mut kept.disks_to_delete] {
            noted.retain(|other| other != disk);
        }
        kept
    }

    /// The record after a disk that was to be removed was seen at a VM: it is retained at its present place. The removal request
    /// stays recorded.
    #[must_use]
    pub(super) fn hung(&self, disk: &DiskRef, now: &DiskRef) -> Self {
        self.forgetting(disk).leaving(now)
    }

    /// The record after a disk whose removal was requested was seen at a VM, at another place than recorded. It is retained at
    /// its present place.
    #[must_use]
    pub(super) fn moved(&self, disk: &DiskRef, now: &DiskRef) -> Self {
        self.hung(disk, now).not_removing(disk)
    }

    /// The record with one of its nodes replaced.
    #[must_use]
    pub(super) fn with(&self, node: Node) -> Self {
        let mut kept = self.clone();
        for own in kept.nodes.iter_mut().filter(|own| own.name == node.name) {
            own.clone_from(&node);
        }
        kept
    }
}

pub(super) fn only_data_disk(vm: &Vm) -> Option<&DiskRef> {
    let mut held = vm.data_disks().map(|disk| &disk.reference);
    held.next().filter(|_| held.next().is_none())
}
