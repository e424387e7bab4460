//! Limits how often VMs are created and powered on. Without a limit, a cause that undoes it each time, such as a client that
//! changes each new VM, would repeat it endlessly.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::action::Action;
use super::create_attempts::{CreateAttempt, CreateAttempts};
use super::deployment_record::{DeploymentRecord, Node};
use super::inventory::{Found, Inventory};
use super::reason;
use super::unfinished::Unfinished;
use super::wait::Wait;
use crate::hypervisor::{Result, Vm};

/// How often one command may remove a node's incomplete VM, complete its VM, or power it on. A call without an effect does not
/// count, whatever its response was.
const ATTEMPTS: usize = 3;

/// The pause after the last failed attempt before a process that retries by itself creates one more VM.
const AGAIN: Duration = Duration::from_secs(60 * 60);

/// Counts by the node's name.
type Counts = Mutex<BTreeMap<String, usize>>;

/// The attempts for nodes.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    /// Of the command's process, if that runs the same command again and again: creations of its earlier commands count as well.
    process: Option<&'a Unfinished>,
    /// Of this command, if an operator runs it.
    own: CreateAttempts,
    /// How often this command has powered on a node's VM.
    powered_on: Counts,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(process: Option<&'a Unfinished>) -> Self {
        Self { process, own: CreateAttempts::default(), powered_on: Mutex::default() }
    }

    /// A VM is about to be created with this BIOS UUID.
    pub(super) fn makes(&self, vm: Uuid) {
        self.makings().begins(vm);
    }

    /// Keeps the error, to report it once no further VM is created. Counts a VM that was created completely.
    pub(super) fn made<T>(&self, vm: Uuid, called: &Result<T>) {
        self.makings().answered(vm, called.as_ref().err().map(ToString::to_string));
    }

    /// Counts an incomplete VM that is about to be removed.
    pub(super) fn removes(&self, kept: &DeploymentRecord, vm: &Vm) {
        let is_half = |node: &Node| node.bios_uuid.is_none() && node.allocated_uuid == Some(vm.uuid());
        let is_half_replacement =
            kept.is_replacement(vm.uuid()) && kept.replacement.as_ref().is_some_and(|open| open.admitted.is_none());
        if is_half_replacement || kept.nodes.iter().any(is_half) {
            self.makings().removes(vm.uuid());
        }
    }

    /// Forgets the incomplete VMs of nodes that have a complete VM now.
    pub(super) fn sees(&self, kept: &DeploymentRecord, seen: &Inventory) {
        let whole = kept.nodes.iter().filter(|node| matches!(seen.first_vm(node), Found::Vm(_)));
        for drawn in whole.filter_map(|node| node.allocated_uuid) {
            self.makings().is_whole(drawn);
        }
    }

    /// A VM is about to be powered on: if it is removed from now on, no other one is created.
    pub(super) fn powers_on(&self, vm: Uuid) {
        self.makings().ends(vm);
    }

    /// Counts a VM that was powered on.
    pub(super) fn powered_on<T>(&self, node: &str, called: &Result<T>) {
        count(&self.powered_on, node, called);
    }

    /// Why an action is not repeated now. `None` if it may be.
    pub(super) fn hinder(&self, kept: &DeploymentRecord, action: &Action) -> Option<Wait> {
        let (node, words) = match action {
            Action::Replace(node) => (node, self.hinders_making(kept.replacement.as_ref()?.allocated_uuid)?),
            Action::CloneVm(node) => (node, self.hinders_making(kept.node(node)?.allocated_uuid?)?),
            Action::PowerOn(node) | Action::StartReplacement(node) => (node, self.hinders_power_on(node)?),
            _ => return None,
        };
        Some(Wait::lasting(node, reason::VM_UNDONE, words))
    }

    fn hinders_making(&self, vm: Uuid) -> Option<String> {
        let CreateAttempt { halves, wholes, ended, last, .. } = self.makings().of(vm)?;
        let words = if halves >= ATTEMPTS {
            let last = last.map(|last| format!(" (the last time: {last})")).unwrap_or_default();
            format!(
                "{halves} VMs were made for it that were not whole, and were removed again{last}: see to what spoils them"
            )
        } else if wholes >= ATTEMPTS {
            format!("its VM was made {wholes} times, and is gone each time afterwards: see to what removes it")
        } else {
            return None;
        };
        let then = match self.process {
            Some(_) if ended.is_none_or(|ended| ended.elapsed() >= AGAIN) => return None,
            Some(_) => ". One more is made within the hour, or once the controller is restarted",
            None => ", and run the command again",
        };
        Some(format!("{words}{then}"))
    }

    fn hinders_power_on(&self, node: &str) -> Option<String> {
        let times = too_often(&self.powered_on, node)?;
        let then =
            if self.process.is_some() { ". It is tried again in a while" } else { ", and run the command again" };
        Some(format!(
            "its VM was powered on {times} times, and is off each time afterwards: see to what undoes it{then}"
        ))
    }

    fn makings(&self) -> &CreateAttempts {
        self.process.map_or(&self.own, Unfinished::makings)
    }
}

fn count<T>(counts: &Counts, node: &str, called: &Result<T>) {
    if called.is_ok() {
        *all(counts).entry(node.to_owned()).or_default() += 1;
    }
}

/// How often something was done for a node, if it is not done again.
fn too_often(counts: &Counts, node: &str) -> Option<usize> {
    all(counts).get(node).copied().filter(|times| *times >= ATTEMPTS)
}

fn all(counts: &Counts) -> MutexGuard<'_, BTreeMap<String, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
