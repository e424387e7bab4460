//! VMs that this process itself has begun and not powered on: those whose BIOS UUIDs it has drawn. Nothing else proves of such a VM
//! that it was never on: what is kept may have been turned back to the moment at which it was begun, or before, and it may have served ever since.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::create_attempts::CreateAttempts;

/// The BIOS UUIDs of these VMs, and how often the process has made VMs in vain.
#[derive(Debug, Default)]
pub struct Unfinished {
    begun: Mutex<BTreeSet<Uuid>>,
    /// Also of VMs whose UUIDs another process has drawn.
    makings: CreateAttempts,
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
    }

    pub(super) fn has(&self, vm: Uuid) -> bool {
        self.all().contains(&vm)
    }

    /// How often it has made VMs in vain, whatever its commands were.
    pub(super) fn makings(&self) -> &CreateAttempts {
        &self.makings
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
