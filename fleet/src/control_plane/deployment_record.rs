//! What was begun for a cluster. Kept before anything follows from it; there are no secrets in it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use contract::deployer::Fingerprint;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hypervisor::{DiskRef, Place, Stamp, Vm, VmRef};
use crate::upgrade::{DiskCopy, UpgradeSummary};
use crate::workers::Image;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    /// It is made, and runs.
    Active,
    Deleting,
    /// It was removed.
    Deleted,
}

/// Instead of a disk's UUID where nobody knows which one is a node's own. No disk has it.
pub(super) const NONE_KNOWN: Uuid = Uuid::nil();

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, and that of the VM that is made for it.
    pub name: String,
    pub address: Ipv4Addr,
    /// What its VM is made of, in short.
    pub settings_hash: String,
    /// The deployment secret that its VM was told, in short; none in a journal of before this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_hash: Option<String>,
    /// BIOS UUID that its VM is made with, drawn and noted before: half of it is known by that. Stamps alone prove nothing,
    /// for whoever may change a VM's settings can write one.
    #[serde(default)]
    pub allocated_uuid: Option<Uuid>,
    /// BIOS UUID of its VM, once that was made whole.
    #[serde(default)]
    pub bios_uuid: Option<Uuid>,
    /// Whether that was ever powered on: what its data disk holds is the cluster's from then on.
    #[serde(default)]
    pub ever_powered_on: bool,
    /// UUID of the data disk that its VM was made with, noted before that is first powered on, or before half of it gives the disk away: the
    /// disk goes on from VM to VM when images are swapped, and what else a VM holds was given it by somebody. [`NONE_KNOWN`] where its VM did
    /// not hold exactly one then: none that it holds later is taken for its own. None before the next VM is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Uuid>,
}

/// A VM of which nothing is noted, and of which an operator has said that it goes with the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedVm {
    pub bios_uuid: Uuid,
    /// UUIDs of the data disks that it held then.
    pub disks: Vec<Uuid>,
    /// Whether that was said of an earlier command. Its disks are the cluster's; itself it goes only where it is shown and named
    /// again: it may have become something else since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentRecord {
    pub cluster: String,
    /// The deployment that its VMs are stamped with; none in a journal of before this was noted.
    #[serde(default)]
    pub deployment: Option<Uuid>,
    pub lifecycle: Lifecycle,
    /// What its VMs were made from; an upgrade changes that without a word here.
    pub image: Image,
    pub nodes: Vec<Node>,
    /// Whether it has formed. From then on no VM is made for it: a node that has lost its own is replaced by the others.
    #[serde(default)]
    pub formed: bool,
    /// Fingerprint of its authority's public key, as all its nodes showed it when it had formed. Guests can write another one
    /// later: none but this is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<Fingerprint>,
    /// Fingerprint of the deployer's key that its VMs were told, or, once it has formed, of the last one that a node has let in; none in a
    /// journal of before this was noted. Its nodes may have been given another one since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployer_fingerprint: Option<Fingerprint>,
    /// Whether data disks go with it.
    #[serde(default)]
    pub removes_disks: bool,
    /// VMs that go as well when the cluster does, by an operator's word: adopted ones, and those that took another one's place by
    /// hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted_vms: Vec<AdoptedVm>,
    /// The upgrade that was the last one when a cluster here was gone: it has ended with it. One that begins later is of VMs that
    /// have taken its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Uuid>,
    /// Data disks that are left where they are, noted before they are detached.
    #[serde(default)]
    pub retained_disks: Vec<DiskRef>,
    /// Disks that are removed once nobody holds them, noted before they are detached.
    #[serde(default)]
    pub disks_to_delete: Vec<DiskRef>,
    /// UUIDs of disks whose removal was asked for, noted before the last look and the request. One that is not there any more then is gone, or somebody
    /// has moved it: only a command that was told so knows which. Those that went with the cluster stay noted, for an upgrade's journal leads to them all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_disk_deletions: Vec<Uuid>,
    /// Copies of data disks that upgrades have left, noted once the cluster is to go: nothing else names them when its upgrades' journals have
    /// gone. None of them is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<DiskCopy>,
    /// VMs whose removal was requested as the cluster goes, saved before the request. Once it is gone, also its other VMs, with an empty `id`.
    /// A VM with such a BIOS UUID that is found later is a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleting_vms: Vec<VmRef>,
    /// Where VMs were when they were seen last, by BIOS UUID: those that nodes were made in, that the last upgrade knows or that an operator
    /// has named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<Uuid, Place>,
}

/// A journal is another deployment's than the one that is described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal here is {whose} of the deployment {noted}, and what is described is the deployment {here}: nothing was changed. \
     If these are two clusters, give this one a journal of its own; if it is the same one, and something of its description was \
     renamed, name the deployment {noted}"
)]
pub struct OtherDeployment {
    /// What the journal is of, for people.
    pub whose: String,
    pub noted: Uuid,
    /// The one that is described.
    pub here: Uuid,
}

impl Node {
    /// The data disk that is known as its own.
    pub fn own_disk(&self) -> Option<Uuid> {
        self.disk.filter(|disk| *disk != NONE_KNOWN)
    }

    pub(super) fn stamp(&self, deployment: Uuid) -> Stamp {
        Stamp { deployment, node: self.name.clone(), swap: None }
    }

    /// BIOS UUID of the VM that was made for it, or was to be.
    pub(super) fn noted(&self) -> Option<Uuid> {
        self.bios_uuid.or(self.allocated_uuid)
    }

    /// Whether a VM of this BIOS UUID was made for it, or was to be.
    pub(super) fn has_noted(&self, uuid: Uuid) -> bool {
        self.bios_uuid == Some(uuid) || self.allocated_uuid == Some(uuid)
    }

    /// Whether a VM is stamped as this node's, whatever image it has.
    pub(super) fn owns(&self, vm: &Vm) -> bool {
        vm.stamp.as_ref().is_some_and(|stamp| stamp.node == self.name)
    }
}

impl DeploymentRecord {
    /// Refuses a journal of another deployment: another file leads to it, or what the deployment is named by was renamed.
    /// Its VMs are not those that are seen here.
    pub(super) fn is_of(&self, deployment: Uuid) -> Result<(), OtherDeployment> {
        match self.deployment {
            Some(noted) if noted != deployment => {
                Err(OtherDeployment { whose: format!("that of the cluster {}", self.cluster), noted, here: deployment })
            }
            _ => Ok(()),
        }
    }

    /// Whether an operator has said of this command that a VM goes as well.
    pub(super) fn is_granted(&self, vm: Uuid) -> bool {
        self.adopted_vms.iter().any(|granted| granted.bios_uuid == vm && !granted.earlier)
    }

    /// Whether a disk is the cluster's: a node was made with it, or a VM held it of which an operator has said that it goes.
    pub(super) fn is_own_disk(&self, disk: Uuid) -> bool {
        self.nodes.iter().any(|node| node.own_disk() == Some(disk))
            || self.adopted_vms.iter().any(|vm| vm.disks.contains(&disk))
    }

    /// The same once a node's VM is on, or is about to be: what that holds is of use from then on. What is noted of the node's own disk stays. One
    /// that is left is nobody's, nor is one that was to go with half a VM of before.
    #[must_use]
    pub(super) fn starting(&self, node: Node, vm: &Vm) -> Self {
        let mut held = vm.data_disks().map(|disk| disk.reference.uuid);
        let only = held.next().filter(|_| held.next().is_none());
        let is_anothers =
            |disk: &Uuid| self.retained_disks.iter().chain(&self.disks_to_delete).any(|noted| noted.uuid == *disk);
        let own = only.filter(|disk| !is_anothers(disk)).unwrap_or(NONE_KNOWN);
        self.with(Node { ever_powered_on: true, disk: node.disk.or(Some(own)), ..node })
    }

    /// The same once a VM was seen on, where that is news: what it holds is of use. Half a VM is made anew all the same, and its disks are left, as
    /// are those that were to go, whosever VM holds them. Of a whole one that is not stamped as it was made, or that others were copied from, nobody
    /// knows which disk is its own; nor is it a word of where a disk is now.
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

    /// The same with the present places of VMs, and without those of VMs that an upgrade has destroyed. The datastores of new places are not
    /// known yet.
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
            if kept.places.get(&vm.uuid()).is_none_or(|place| place.settings != settings) {
                let node = vm.stamp.as_ref().map_or(&vm.name, |stamp| &stamp.node).clone();
                kept.places.insert(vm.uuid(), Place { node, settings, datastore: None });
            }
        }
        kept
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Whether a VM is yet to be made, where those with the deployment's stamp are `vms`. None is, once the cluster has formed, nor for a
    /// node whose VM was on.
    pub(super) fn makes(&self, vms: &[Vm]) -> bool {
        let lacks = |node: &Node| node.bios_uuid.is_none() || !vms.iter().any(|vm| node.owns(vm));
        !self.formed && self.nodes.iter().any(|node| !node.ever_powered_on && lacks(node))
    }

    /// The same with a disk's removal noted that is about to be asked for.
    #[must_use]
    pub(super) fn removing(&self, disk: &DiskRef) -> Self {
        let mut kept = self.not_removing(disk);
        kept.requested_disk_deletions.push(disk.uuid);
        kept
    }

    /// The same with a VM's removal noted that is about to be asked for.
    #[must_use]
    pub(super) fn destroying(&self, vm: &VmRef) -> Self {
        let mut kept = self.clone();
        if !kept.deleting_vms.contains(vm) {
            kept.deleting_vms.push(vm.clone());
        }
        kept
    }

    /// The same once a disk was seen where it was noted, after all that anybody had asked for before has ended: its removal has not happened.
    #[must_use]
    pub(super) fn not_removing(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.requested_disk_deletions.retain(|uuid| *uuid != disk.uuid);
        kept
    }

    /// Disks that are noted as left, or as yet to be removed, and whose removal was asked for: nobody has heard what became of it.
    pub(super) fn in_doubt(&self) -> Vec<DiskRef> {
        let noted = self.disks_to_delete.iter().chain(&self.retained_disks);
        noted.filter(|disk| self.requested_disk_deletions.contains(&disk.uuid)).cloned().collect()
    }

    /// The same once a disk was removed.
    #[must_use]
    pub(super) fn removed(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.disks_to_delete.retain(|other| other != disk);
        // A cluster that is made removes blank ones alone, of which nothing else knows.
        if self.lifecycle == Lifecycle::Active {
            kept.requested_disk_deletions.retain(|uuid| *uuid != disk.uuid);
        }
        kept
    }

    /// The same with a disk among what is left that would be removed otherwise: it is not where it was noted, and may be elsewhere, for
    /// nobody knows that it was removed; or nobody was shown it as what goes. That its removal was asked for stays noted where it was.
    #[must_use]
    pub(super) fn leaving(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        kept.disks_to_delete.retain(|other| other != disk);
        if !kept.retained_disks.contains(disk) {
            kept.retained_disks.push(disk.clone());
        }
        kept
    }

    /// The same once a person has confirmed it who was shown that a disk is not there whose removal was asked for: it is named no more.
    /// That its removal was asked for stays noted, for an upgrade's journal leads to it all the same.
    #[must_use]
    pub(super) fn forgetting(&self, disk: &DiskRef) -> Self {
        let mut kept = self.clone();
        for noted in [&mut kept.retained_disks, &mut kept.disks_to_delete] {
            noted.retain(|other| other != disk);
        }
        kept
    }

    /// The same once a disk that was to go was seen at a VM: it is left, where it is now. That its removal was asked for stays noted.
    #[must_use]
    pub(super) fn hung(&self, disk: &DiskRef, now: &DiskRef) -> Self {
        self.forgetting(disk).leaving(now)
    }

    /// The same once a disk whose removal was asked for was seen at a VM, and not where it was noted: it is left, where it is now.
    #[must_use]
    pub(super) fn moved(&self, disk: &DiskRef, now: &DiskRef) -> Self {
        self.hung(disk, now).not_removing(disk)
    }

    /// The same with one of its nodes otherwise.
    #[must_use]
    pub(super) fn with(&self, node: Node) -> Self {
        let mut kept = self.clone();
        for own in kept.nodes.iter_mut().filter(|own| own.name == node.name) {
            own.clone_from(&node);
        }
        kept
    }
}
