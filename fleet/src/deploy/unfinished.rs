//! VMs that this process itself has begun and not powered on: those whose BIOS UUIDs it was the first to note. Nothing else proves of such a VM
//! that it was never on: what is kept may have been turned back to the moment at which it was begun, and it may have served ever since.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The BIOS UUIDs of these VMs.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<BTreeSet<Uuid>>);

impl Unfinished {
    /// One is to be made with a BIOS UUID that nobody has noted before.
    pub(super) fn begins(&self, vm: Uuid) {
        self.all().insert(vm);
    }

    /// It is about to be powered on.
    pub(super) fn ends(&self, vm: Uuid) {
        self.all().remove(&vm);
    }

    /// Whether a VM is one of them.
    pub(super) fn has(&self, vm: Uuid) -> bool {
        self.all().contains(&vm)
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
