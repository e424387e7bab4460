//! What is there, looked at once.

use std::collections::{BTreeMap, BTreeSet};

use super::kept::Node;
use crate::hypervisor::{DiskKind, DiskRef, Vm};

/// What a new node says of its cluster to whoever deployed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing yet, for this reason.
    Nothing(String),
    /// That it has formed: it has given credentials.
    Formed,
}

/// VMs and nodes at one moment. A place that could not be looked at is no part of it: then nothing is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The VMs that carry the deployment's stamp, and those that are nodes' by BIOS UUID, whatever they carry.
    pub vms: Vec<Vm>,
    /// What nodes say, by name; nothing of those that were not asked.
    pub said: BTreeMap<String, Said>,
    /// The nodes that are Ready; or why the cluster's API does not say. Nobody asks before one has given credentials.
    pub ready: Option<Result<BTreeSet<String>, String>>,
}

/// What there is of a node's VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// Nothing.
    Nothing,
    /// Its VM.
    Vm(&'a Vm),
    /// A VM with its stamp that was never noted as whole.
    Half(&'a Vm),
    /// More than one, or one whose stamp or identity is not what was noted. It is left alone.
    Odd,
}

impl Seen {
    /// A node's VM before its cluster has formed: the one that was noted.
    pub(super) fn first_vm(&self, node: &Node) -> Found<'_> {
        let own: Vec<&Vm> = self.vms.iter().filter(|vm| node.owns(vm)).collect();
        let is_unstamped = |vm: &Vm| node.vm == Some(vm.uuid()) && !node.owns(vm);
        if self.vms.iter().any(is_unstamped) {
            return Found::Odd;
        }
        match (own.as_slice(), node.vm) {
            ([], _) => Found::Nothing,
            // Whoever was killed again and again has left no more than one: it is removed before the next one is made.
            ([half, ..], None) => Found::Half(half),
            ([vm], Some(noted)) if vm.uuid() == noted => Found::Vm(vm),
            (_, Some(_)) => Found::Odd,
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

    /// Whether a VM holds a disk.
    pub(super) fn is_held(&self, disk: &DiskRef) -> bool {
        self.vms.iter().any(|vm| vm.disk(disk.uuid).is_some())
    }
}

/// A disk of a VM that does not go with it.
pub(super) fn outliving(vm: &Vm) -> Option<&DiskRef> {
    vm.disks.iter().find(|disk| disk.kind != DiskKind::System).map(|disk| &disk.reference)
}
