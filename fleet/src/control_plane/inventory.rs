//! What is there, looked at once.

use std::collections::{BTreeMap, BTreeSet};

use contract::deployer::Fingerprint;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Node};
use super::replica::LeftVm;
use super::wait::Wait;
use crate::hypervisor::{DiskKind, DiskRef, Vm, VmRef};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport {
    /// Nothing yet, for this reason.
    Nothing(String),
    /// That it has formed: it has given credentials.
    Formed,
}

/// VMs and nodes at one moment. A place that could not be looked at is no part of it: then nothing is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The VMs that carry the deployment's stamp, and those that are nodes' by BIOS UUID, whatever they carry.
    pub vms: Vec<Vm>,
    /// VMs that are the cluster's by BIOS UUID and by a disk that they hold, and carry another deployment's stamp.
    pub restamped: Vec<Vm>,
    /// VMs that were met on the way and are not the cluster's: other deployments', and those that an operator had named once and has
    /// taken the stamp from. What they hold is not anybody's to remove.
    pub bystanders: Vec<Vm>,
    /// Those among them that are copies of nodes' VMs, as backup software keeps or brings back.
    pub replicas: Vec<VmRef>,
    /// VMs that have the BIOS UUID of one that may be powered on or removed, and were not found where that was: which of them was made
    /// for the node nobody can say.
    pub doubles: Vec<Vm>,
    /// Why it cannot be told of a VM that may be powered on or removed, by BIOS UUID, whether there are such.
    pub unclear: BTreeMap<Uuid, String>,
    /// Why it cannot be told of a node of a cluster that has formed, by name, whether its VM is elsewhere. It counts where none is in sight, or one
    /// that is stale.
    pub hidden: BTreeMap<String, String>,
    /// If the cluster is to be deleted: what is waited for because VMs of nodes are not shown and may run.
    pub unproved: Vec<Wait>,
    /// BIOS UUIDs of VMs that are off and hold other data disks than their node's, of a cluster that an upgrade has gone through: a backup may have
    /// brought them back.
    pub stale: BTreeSet<Uuid>,
    /// BIOS UUIDs of the cluster's VMs that an upgrade has noted.
    pub upgraded: BTreeSet<Uuid>,
    /// What nodes say, by name; nothing of those that were not asked.
    pub said: BTreeMap<String, NodeReport>,
    /// Fingerprint of the authority that each node shows through the hypervisor, by name.
    pub shown: BTreeMap<String, Fingerprint>,
    /// The nodes that are Ready; or why the cluster's API does not say. Nobody asks before one has given credentials.
    pub ready: Option<Result<BTreeSet<String>, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    Vm(&'a Vm),
    /// The VM that was noted before it was made, and never noted as whole.
    Half(&'a Vm),
    /// More than one, or one whose stamp or identity is not what was noted. It is left alone.
    Odd,
}

impl Inventory {
    /// A node's VM before its cluster has formed: the one that was noted.
    pub(super) fn first_vm(&self, node: &Node) -> Found<'_> {
        let own: Vec<&Vm> = self.vms.iter().filter(|vm| node.owns(vm)).collect();
        let is_unstamped = |vm: &Vm| node.noted() == Some(vm.uuid()) && !node.owns(vm);
        if self.vms.iter().any(is_unstamped) {
            return Found::Odd;
        }
        match (own.as_slice(), node.bios_uuid) {
            ([], _) => Found::Nothing,
            ([vm], Some(noted)) if vm.uuid() == noted => Found::Vm(vm),
            // Whoever was killed again and again has left no more than one: it is removed before the next one is made.
            ([half], None) if node.allocated_uuid == Some(half.uuid()) => Found::Half(half),
            // A stamp that anybody may have written.
            _ => Found::Odd,
        }
    }

    /// A node's VM once its cluster has formed: the one that holds the data disk. An upgrade may have swapped it.
    pub(super) fn later_vm(&self, node: &Node) -> Found<'_> {
        let own = self.vms.iter().filter(|vm| node.owns(vm) && vm.data_disks().next().is_some());
        match own.collect::<Vec<_>>().as_slice() {
            [] => Found::Nothing,
            [vm] => Found::Vm(vm),
            _ => Found::Odd,
        }
    }

    /// Whether a VM is one that the deployment or an upgrade has made, or that goes by an operator's word: it alone has a BIOS UUID that was noted.
    pub(super) fn is_noted(&self, kept: &DeploymentRecord, vm: &Vm) -> bool {
        let is_made = kept.nodes.iter().any(|node| node.has_noted(vm.uuid())) || self.upgraded.contains(&vm.uuid());
        let is_known = is_made || kept.is_granted(vm.uuid());
        is_known && self.vms.iter().filter(|other| other.uuid() == vm.uuid()).count() == 1
    }

    /// The copies of nodes' VMs that were met.
    pub(super) fn left_vms(&self) -> Vec<LeftVm> {
        let copies = self.bystanders.iter().filter(|vm| self.replicas.contains(&vm.reference));
        copies.map(|vm| LeftVm { name: vm.name.clone(), vm: vm.reference.clone() }).collect()
    }

    /// Another VM that has a VM's BIOS UUID, elsewhere.
    pub(super) fn double_of(&self, vm: &Vm) -> Option<&Vm> {
        self.doubles.iter().find(|other| other.uuid() == vm.uuid())
    }

    /// The VMs that were seen to run or to be suspended, also those that carry another deployment's stamp now.
    pub(super) fn on(&self) -> impl Iterator<Item = &Vm> {
        self.vms.iter().chain(&self.restamped).filter(|vm| vm.power.proves_power_on())
    }

    /// The VMs that are or claim to be a node's, for people.
    pub(super) fn claims(&self, node: &Node) -> String {
        let claim = |vm: &&Vm| node.owns(vm) || node.noted() == Some(vm.uuid());
        self.vms.iter().filter(claim).map(Vm::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The authority that all of the nodes show; none as long as one shows none, or another one.
    pub(super) fn authority(&self, kept: &DeploymentRecord) -> Option<Fingerprint> {
        let mut shown = kept.nodes.iter().map(|node| self.shown.get(&node.name).copied());
        let first = shown.next()??;
        shown.all(|other| other == Some(first)).then_some(first)
    }

    /// Which nodes show another authority than they have to, and what is shown; none if all is well. Those that show none do
    /// not count.
    pub(super) fn strange_authority(&self, kept: &DeploymentRecord) -> Option<(String, String)> {
        let mut shown = self.shown.iter();
        if let Some(noted) = kept.ca_fingerprint {
            let (name, other) = shown.find(|(_, shown)| **shown != noted)?;
            return Some((
                name.clone(),
                format!("it shows the authority {other}, and the cluster has formed with {noted}"),
            ));
        }
        let (first, of_first) = shown.next()?;
        let (name, other) = shown.find(|(_, shown)| *shown != of_first)?;
        Some((name.clone(), format!("it shows the authority {other}, and {first} shows {of_first}")))
    }

    /// Whether a VM of the cluster holds a disk.
    pub(super) fn is_held(&self, disk: &DiskRef) -> bool {
        self.vms.iter().any(|vm| vm.disk(disk.uuid).is_some())
    }

    /// Whether none of the VMs that were seen holds a disk, whosoever they are.
    pub(super) fn is_free(&self, disk: &DiskRef) -> bool {
        !self.is_held(disk) && self.other_holder(disk).is_none()
    }

    /// The VM that holds a disk elsewhere than it was noted, whosoever it is, and where that disk is now. A VM that names it where it
    /// was noted, and where it is not any more, is no place: that was read of the VM before, or is all that is left of the disk.
    pub(super) fn holder_elsewhere(&self, disk: &DiskRef) -> Option<(&Vm, &DiskRef)> {
        let mut all = self.vms.iter().chain(&self.restamped).chain(&self.bystanders);
        all.find_map(|vm| {
            let now = &vm.disk(disk.uuid)?.reference;
            (now.path != disk.path).then_some((vm, now))
        })
    }

    /// The VM that holds a disk and is none of the cluster's, or carries another one's stamp.
    pub(super) fn other_holder(&self, disk: &DiskRef) -> Option<&Vm> {
        self.restamped.iter().chain(&self.bystanders).find(|vm| vm.disk(disk.uuid).is_some())
    }
}

/// A disk of a VM that does not go with it.
pub(super) fn outliving(vm: &Vm) -> Option<&DiskRef> {
    vm.disks.iter().find(|disk| disk.kind != DiskKind::System).map(|disk| &disk.reference)
}
