//! VMs that this process itself has begun and not powered on: those whose BIOS UUIDs it has drawn. Nothing else proves of such a VM
//! that it was never on: what is kept may have been turned back to the moment at which it was begun, or before, and it may have served ever since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The BIOS UUIDs of these VMs.
#[derive(Debug, Default)]
pub struct Unfinished {
    begun: Mutex<BTreeSet<Uuid>>,
    /// Those of which no more than half was ever made, also where another process has drawn the UUID: each may leave a disk.
    halves: Mutex<BTreeMap<Uuid, Halves>>,
}

/// How often half of a VM was made by this process, whatever its commands were.
#[derive(Clone, Debug)]
pub(super) struct Halves {
    /// What it was made of.
    made_of: String,
    pub(super) times: usize,
    /// What was said last.
    pub(super) last: String,
}

impl Unfinished {
    /// One is to be made with a BIOS UUID that was drawn in this process a moment ago, and that nobody has been given before. One that was only
    /// read is not so, however new it looks: what it was read from may have been turned back.
    pub fn begins(&self, vm: Uuid) {
        self.all().insert(vm);
    }

    /// It is about to be powered on.
    pub(super) fn ends(&self, vm: Uuid) {
        self.all().remove(&vm);
        self.all_halves().remove(&vm);
    }

    /// Half of one was made, and is removed.
    pub(super) fn is_half(&self, vm: Uuid, made_of: String, last: String) {
        let times = 1 + self.halves(vm, &made_of).map_or(0, |halves| halves.times);
        self.all_halves().insert(vm, Halves { made_of, times, last });
    }

    /// How often half of one was made of this; what is made of something else may come whole.
    pub(super) fn halves(&self, vm: Uuid, made_of: &str) -> Option<Halves> {
        self.all_halves().get(&vm).filter(|halves| halves.made_of == made_of).cloned()
    }

    /// Whether a VM is one of them.
    pub(super) fn has(&self, vm: Uuid) -> bool {
        self.all().contains(&vm)
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_halves(&self) -> MutexGuard<'_, BTreeMap<Uuid, Halves>> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
