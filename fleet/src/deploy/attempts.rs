//! How often one command has had VMs made and powered on: what undoes that each time, as somebody who adds something to each new VM, or a
//! guest that goes off at once, would have it go on without an end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::action::Action;
use super::kept::{Kept, Node};
use super::reason;
use super::unfinished::{Halves, Unfinished};
use super::wait::Wait;
use crate::hypervisor::{Kind, Result};

/// So often one command does the same for a node. A call of which nothing came is none of them, whatever its answer was.
const ATTEMPTS: usize = 3;

/// What is done again for a node where it was undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Made,
    PoweredOn,
}

/// How often that was done, and what came of it last.
#[derive(Debug, Default)]
struct Count {
    times: usize,
    last: Option<String>,
}

/// What one command has done, by what it is and by the node's name.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    /// What the command's process has made of VMs before, if it gives the same one again and again.
    process: Option<&'a Unfinished>,
    counts: Mutex<BTreeMap<(Done, String), Count>>,
    /// What was said last of a node's VM of which nobody knows yet whether any of it was made.
    doubts: Mutex<BTreeMap<String, String>>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(process: Option<&'a Unfinished>) -> Self {
        Self { process, counts: Mutex::default(), doubts: Mutex::default() }
    }

    /// Counts a VM that was made. Where nobody knows whether it was, half of it counts once that is seen ([`Self::half`]).
    pub(super) fn made<T>(&self, node: &str, called: &Result<T>) {
        match called {
            Ok(_) => {
                self.doubts().remove(node);
                self.count(Done::Made, node, None);
            }
            Err(error) if error.kind == Kind::InDoubt => {
                self.doubts().insert(node.to_owned(), error.to_string());
            }
            Err(_) => {}
        }
    }

    /// Counts half a VM that is about to be removed, once, where this command has made it.
    pub(super) fn half(&self, kept: &Kept, node: &Node) {
        let Some(last) = self.doubts().remove(&node.name) else { return };
        if let (Some(process), Some(drawn)) = (self.process, node.drawn) {
            process.is_half(drawn, made_of(kept, node), last.clone());
        }
        self.count(Done::Made, &node.name, Some(last));
    }

    /// Counts a VM that was powered on.
    pub(super) fn powered_on<T>(&self, node: &str, called: &Result<T>) {
        if called.is_ok() {
            self.count(Done::PoweredOn, node, None);
        }
    }

    fn count(&self, done: Done, node: &str, last: Option<String>) {
        let mut counts = self.counts();
        let count = counts.entry((done, node.to_owned())).or_default();
        *count = Count { times: count.times + 1, last };
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<(Done, String), Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubts(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a person is to see to it before an action is done once more; none if it may be.
    pub(super) fn hinder(&self, kept: &Kept, action: &Action) -> Option<Wait> {
        let (done, node) = match action {
            Action::Make(node) => (Done::Made, node),
            Action::PowerOn(node) => (Done::PoweredOn, node),
            _ => return None,
        };
        if done == Done::Made
            && let Some(Halves { times, last, .. }) = self.halves(kept, node).filter(|halves| halves.times >= ATTEMPTS)
        {
            let words = format!(
                "its VM was made {times} times, and is not there whole each time afterwards (the last time: {last}): see to what undoes \
                 it. None is made any more until it is described otherwise, or the controller is restarted"
            );
            return Some(Wait::lasting(node, reason::VM_UNDONE, words));
        }
        let counts = self.counts();
        let count = counts.get(&(done, node.clone())).filter(|count| count.times >= ATTEMPTS)?;
        let (what, undone) = match done {
            Done::Made => ("made", "is not there whole"),
            Done::PoweredOn => ("powered on", "is off"),
        };
        let last = count.last.as_ref().map(|last| format!(" (the last time: {last})")).unwrap_or_default();
        let then =
            if self.process.is_some() { ". It is tried again in a while" } else { ", and give the command again" };
        let words = format!(
            "its VM was {what} {} times, and {undone} each time afterwards{last}: see to what undoes it{then}",
            count.times
        );
        Some(Wait::lasting(node, reason::VM_UNDONE, words))
    }

    fn halves(&self, kept: &Kept, node: &str) -> Option<Halves> {
        let node = kept.node(node)?;
        self.process?.halves(node.drawn?, &made_of(kept, node))
    }
}

fn made_of(kept: &Kept, node: &Node) -> String {
    format!("{} {}", kept.image.digest, node.made_of)
}
