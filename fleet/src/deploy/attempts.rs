//! How often one command has had VMs made and powered on: what undoes that each time, as somebody who adds something to each new VM, or a
//! guest that goes off at once, would have it go on without an end.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::action::Action;
use super::reason;
use super::wait::Wait;
use crate::hypervisor::{Kind, Result};

/// So often one command does the same for a node. A call whose answer is lost is one of them.
const ATTEMPTS: usize = 3;

/// What is done again for a node where it was undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Done {
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
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<BTreeMap<(Done, String), Count>>);

impl Attempts {
    /// Counts a call that has ended, unless nothing has happened by it.
    pub(super) fn count<T>(&self, done: Done, node: &str, called: &Result<T>) {
        let last = match called {
            Ok(_) => None,
            Err(error) if error.kind == Kind::InDoubt => Some(error.to_string()),
            Err(_) => return,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((done, node.to_owned())).or_default();
        *count = Count { times: count.times + 1, last };
    }

    /// Why a person is to see to it before an action is done once more; none if it may be.
    pub(super) fn hinder(&self, action: &Action) -> Option<Wait> {
        let (done, node) = match action {
            Action::Make(node) => (Done::Made, node),
            Action::PowerOn(node) => (Done::PoweredOn, node),
            _ => return None,
        };
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&(done, node.clone())).filter(|count| count.times >= ATTEMPTS)?;
        let (what, undone) = match done {
            Done::Made => ("made", "is not there whole"),
            Done::PoweredOn => ("powered on", "is off"),
        };
        let last = count.last.as_ref().map(|last| format!(" (the last time: {last})")).unwrap_or_default();
        let words = format!(
            "its VM was {what} {} times, and {undone} each time afterwards{last}: see to what undoes it, and give the command again",
            count.times
        );
        Some(Wait::lasting(node, reason::VM_UNDONE, words))
    }
}
