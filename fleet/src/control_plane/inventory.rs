//! The observed state at one moment.

use std::collections::{BTreeMap, BTreeSet};

use contract::deployer::Fingerprint;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Node};
use super::replica::LeftVm;
use super::wait::Wait;
use crate::hypervisor::{DiskKind, DiskRef, PowerState, Vm, VmRef};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport {
    /// Nothing yet, for this reason.
    Nothing(String),
    /// The node has formed its cluster: it gave credentials.
    Formed,
}

/// VMs and nodes at one moment. If a place could not be read, there is no inventory, and nothing is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// VMs that carry the deployment's stamp, and VMs with the BIOS UUID of a node, whatever they carry.
    pub vms: Vec<Vm>,
    /// VMs that are the cluster's by BIOS UUID and by a disk that they hold, and carry another deployment's stamp.
    pub restamped: Vec<Vm>,
    /// Former VMs of nodes that were replaced, and that were found again. Empty if the cluster is to be deleted.
    pub replaced: Vec<Vm>,
    /// The time of the look, in seconds of Unix time.
    pub now: u64,
    /// Other VMs that were found and are not the cluster's: other deployments', and those that an operator named once before
    /// their stamp was removed. Their disks are not removed.
    pub bystanders: Vec<Vm>,
    /// Copies of nodes' VMs among them, as backup software keeps or restores them.
    pub replicas: Vec<VmRef>,
    /// VMs with the BIOS UUID of a VM that may be powered on or removed, found at another place. It is unknown which of them was
    /// created for the node.
    pub doubles: Vec<Vm>,
    /// Why it is unknown whether such doubles exist, by BIOS UUID of a VM that may be powered on or removed.
    pub unclear: BTreeMap<Uuid, String>,
    /// Why it is unknown whether a node's VM is elsewhere, by name. Only for nodes of a formed cluster, and only used if no VM is
    /// in sight, or a stale one.
    pub hidden: BTreeMap<String, String>,
    /// If the cluster is to be deleted: what is waited for because VMs of nodes are not shown and may run.
    pub unproved: Vec<Wait>,
    /// BIOS UUIDs of VMs that are off and hold other data disks than their node's, in a cluster that was upgraded. A backup may
    /// have restored them.
    pub stale: BTreeSet<Uuid>,
    /// BIOS UUIDs of the cluster's VMs that an upgrade recorded.
    pub upgraded: BTreeSet<Uuid>,
    /// The reports of nodes, by name. Without nodes that were not asked.
    pub said: BTreeMap<String, NodeReport>,
    /// Fingerprint of the CA that each node shows through the hypervisor, by name.
    pub shown: BTreeMap<String, Fingerprint>,
    /// The Ready nodes, or why the cluster's API does not report them. `None` before a node has given credentials.
    pub ready: Option<Result<BTreeSet<String>, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    Vm(&'a Vm),
    /// The VM that was recorded before its creation, and never as complete.
    Half(&'a Vm),
    /// More than one, or one with another stamp or identity than recorded. It is not changed.
    Odd,
}

impl Inventory {
    /// A node's VM before its cluster has formed: the recorded one.
    pub(super) fn first_vm(&self, node: &Node) -> Found<'_> {
        let own: Vec<&Vm> = self.vms.iter().filter(|vm| node.owns(vm)).collect();
        let is_unstamped = |vm: &Vm| node.noted() == Some(vm.uuid()) && !node.owns(vm);
        if self.vms.iter().any(is_unstamped) {
            return Found::Odd;
        }
        match (own.as_slice(), node.bios_uuid) {
            ([], _) => Found::Nothing,
            ([vm], Some(noted)) if vm.uuid() == noted => Found::Vm(vm),
            // Commands that are killed again and again leave at most one: it is removed before the next VM is created.
            ([half], None) if node.allocated_uuid == Some(half.uuid()) => Found::Half(half),
            // Any account may have written this stamp.
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

    /// Whether the deployment or an upgrade created a VM, or an operator named it for removal, and no other VM has its BIOS UUID.
    pub(super) fn is_noted(&self, kept: &DeploymentRecord, vm: &Vm) -> bool {
        let is_made = kept.nodes.iter().any(|node| node.has_noted(vm.uuid())) || self.upgraded.contains(&vm.uuid());
        let is_made = is_made || kept.is_replacement(vm.uuid()) || kept.replaced_vms.contains(&vm.uuid());
        let is_known = is_made || kept.is_granted(vm.uuid());
        is_known && self.vms.iter().filter(|other| other.uuid() == vm.uuid()).count() == 1
    }

    /// The former VMs of replaced nodes that have returned. One whose host does not answer is left alone.
    pub(super) fn returned(&self) -> impl Iterator<Item = &Vm> {
        self.replaced.iter().filter(|vm| vm.stamp.is_some() && vm.power != PowerState::Unknown)
    }

    /// The copies of nodes' VMs that were found.
    pub(super) fn left_vms(&self) -> Vec<LeftVm> {
        let copies = self.bystanders.iter().filter(|vm| self.replicas.contains(&vm.reference));
        copies.map(|vm| LeftVm { name: vm.name.clone(), vm: vm.reference.clone() }).collect()
    }

    /// Another VM with a VM's BIOS UUID, elsewhere.
    pub(super) fn double_of(&self, vm: &Vm) -> Option<&Vm> {
        self.doubles.iter().find(|other| other.uuid() == vm.uuid())
    }

    /// The VMs that were seen running or suspended, including those that carry another deployment's stamp now.
    pub(super) fn on(&self) -> impl Iterator<Item = &Vm> {
        self.vms.iter().chain(&self.restamped).filter(|vm| vm.power.proves_power_on())
    }

    /// The VMs that are a node's or claim to be, for messages.
    pub(super) fn claims(&self, node: &Node) -> String {
        let claim = |vm: &&Vm| node.owns(vm) || node.noted() == Some(vm.uuid());
        self.vms.iter().filter(claim).map(Vm::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The CA that all nodes show. `None` as long as one shows none, or another one.
    pub(super) fn authority(&self, kept: &DeploymentRecord) -> Option<Fingerprint> {
        let mut shown = kept.nodes.iter().map(|node| self.shown.get(&node.name).copied());
        let first = shown.next()??;
        shown.all(|other| other == Some(first)).then_some(first)
    }

    /// A node that shows another CA than it must, and the message. `None` if there is no such node. Nodes that show no CA do not
    /// count.
    pub(super) fn strange_authority(&self, kept: &DeploymentRecord) -> Option<(String, String)> {
        let mut shown = self.shown.iter();
        if let Some(noted) = kept.ca_fingerprint {
            let (name, other) = shown.find(|(_, shown)| **shown != noted)?;
            return Some((name.clone(), format!("it shows the CA {other}, and the cluster has formed with {noted}")));
        }
        let (first, of_first) = shown.next()?;
        let (name, other) = shown.find(|(_, shown)| *shown != of_first)?;
        Some((name.clone(), format!("it shows the CA {other}, and {first} shows {of_first}")))
    }

    /// Whether a VM of the cluster holds a disk.
    pub(super) fn is_held(&self, disk: &DiskRef) -> bool {
        self.vms.iter().any(|vm| vm.disk(disk.uuid).is_some())
    }

    /// Whether no seen VM holds a disk, in or outside the cluster.
    pub(super) fn is_free(&self, disk: &DiskRef) -> bool {
        !self.is_held(disk) && self.other_holder(disk).is_none()
    }

    /// The VM that holds a disk at another place than recorded, in or outside the cluster, and the present place. A VM that names
    /// a missing disk at its recorded place does not count. The VM was read earlier, or its entry is all that is left of the
    /// disk.
    pub(super) fn holder_elsewhere(&self, disk: &DiskRef) -> Option<(&Vm, &DiskRef)> {
        let mut all = self.vms.iter().chain(&self.restamped).chain(&self.bystanders);
        all.find_map(|vm| {
            let now = &vm.disk(disk.uuid)?.reference;
            (now.path != disk.path).then_some((vm, now))
        })
    }

    /// The VM that holds a disk and is outside the cluster, or carries another deployment's stamp.
    pub(super) fn other_holder(&self, disk: &DiskRef) -> Option<&Vm> {
        self.restamped.iter().chain(&self.bystanders).find(|vm| vm.disk(disk.uuid).is_some())
    }
}

/// A disk that is not removed with its VM.
pub(super) fn outliving(vm: &Vm) -> Option<&DiskRef> {
    vm.disks.iter().find(|disk| disk.kind != DiskKind::System).map(|disk| &disk.reference)
}
