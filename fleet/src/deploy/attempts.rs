//! How often VMs are made and powered on: what undoes that each time, as somebody who adds something to each new VM, or a guest that goes
//! off at once, would have it go on without an end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::action::Action;
use super::halves::{Half, Halves};
use super::kept::{Kept, Node};
use super::reason;
use super::seen::{Found, Seen};
use super::unfinished::Unfinished;
use super::wait::Wait;
use crate::hypervisor::{Result, Vm};

/// So often half a VM of a node is removed, or its VM made whole or powered on by one command. A call of which nothing came is none of them,
/// whatever its answer was.
const ATTEMPTS: usize = 3;

/// How long after the last removal a process that tries it again and again makes one more.
const AGAIN: Duration = Duration::from_secs(60 * 60);

/// How often something was done, by the node's name.
type Counts = Mutex<BTreeMap<String, usize>>;

/// What was done for nodes.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    /// Of the command's process, if that gives the same one again and again: what its commands before this one have removed counts as well.
    process: Option<&'a Unfinished>,
    /// Of this command, where it is a person's.
    own: Halves,
    /// How often this command has made a node's VM whole: somebody may remove each one before it is powered on.
    made: Counts,
    /// How often this command has powered on a node's VM.
    powered_on: Counts,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(process: Option<&'a Unfinished>) -> Self {
        Self { process, own: Halves::default(), made: Mutex::default(), powered_on: Mutex::default() }
    }

    /// A VM is about to be made with this BIOS UUID.
    pub(super) fn makes(&self, vm: Uuid) {
        self.halves().begins(vm);
    }

    /// Keeps what that was answered: it is told once no further one is made. Counts a VM that was made whole.
    pub(super) fn made<T>(&self, node: &str, vm: Uuid, called: &Result<T>) {
        self.halves().answered(vm, called.as_ref().err().map(ToString::to_string));
        count(&self.made, node, called);
    }

    /// Counts half a VM that is about to be removed.
    pub(super) fn removes(&self, kept: &Kept, vm: &Vm) {
        let is_half = |node: &Node| node.vm.is_none() && node.drawn == Some(vm.uuid());
        if kept.nodes.iter().any(is_half) {
            self.halves().removes(vm.uuid());
        }
    }

    /// Forgets the halves of VMs that are there whole by now.
    pub(super) fn sees(&self, kept: &Kept, seen: &Seen) {
        let whole = kept.nodes.iter().filter(|node| matches!(seen.first_vm(node), Found::Vm(_)));
        for drawn in whole.filter_map(|node| node.drawn) {
            self.halves().is_whole(drawn);
        }
    }

    /// Counts a VM that was powered on.
    pub(super) fn powered_on<T>(&self, node: &str, called: &Result<T>) {
        count(&self.powered_on, node, called);
    }

    /// Why an action is not done once more now; none if it may be.
    pub(super) fn hinder(&self, kept: &Kept, action: &Action) -> Option<Wait> {
        let (node, words) = match action {
            Action::Make(node) => {
                let spoilt = kept.node(node)?.drawn.and_then(|vm| self.hinders_making(vm));
                (node, spoilt.or_else(|| self.hinders_making_again(node))?)
            }
            Action::PowerOn(node) => (node, self.hinders_power_on(node)?),
            _ => return None,
        };
        Some(Wait::lasting(node, reason::VM_UNDONE, words))
    }

    fn hinders_making(&self, vm: Uuid) -> Option<String> {
        let Half { times, removed, last, .. } = self.halves().of(vm).filter(|half| half.times >= ATTEMPTS)?;
        let then = match self.process {
            Some(_) if removed.is_none_or(|removed| removed.elapsed() >= AGAIN) => return None,
            Some(_) => ". One more is made within the hour, or once the controller is restarted",
            None => ", and give the command again",
        };
        let last = last.map(|last| format!(" (the last time: {last})")).unwrap_or_default();
        Some(format!(
            "{times} VMs were made for it that were not whole, and were removed again{last}: see to what spoils them{then}"
        ))
    }

    fn hinders_making_again(&self, node: &str) -> Option<String> {
        let (times, then) = (too_often(&self.made, node)?, self.then());
        Some(format!("its VM was made {times} times, and is gone each time afterwards: see to what removes it{then}"))
    }

    fn hinders_power_on(&self, node: &str) -> Option<String> {
        let (times, then) = (too_often(&self.powered_on, node)?, self.then());
        Some(format!(
            "its VM was powered on {times} times, and is off each time afterwards: see to what undoes it{then}"
        ))
    }

    /// What comes after one command has done something too often.
    fn then(&self) -> &'static str {
        if self.process.is_some() { ". It is tried again in a while" } else { ", and give the command again" }
    }

    fn halves(&self) -> &Halves {
        self.process.map_or(&self.own, Unfinished::halves)
    }
}

fn count<T>(counts: &Counts, node: &str, called: &Result<T>) {
    if called.is_ok() {
        *all(counts).entry(node.to_owned()).or_default() += 1;
    }
}

/// How often something was done for a node, if that is not done once more.
fn too_often(counts: &Counts, node: &str) -> Option<usize> {
    all(counts).get(node).copied().filter(|times| *times >= ATTEMPTS)
}

fn all(counts: &Counts) -> MutexGuard<'_, BTreeMap<String, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
