//! VMs that this process began and has not powered on: those whose BIOS UUIDs it drew. Nothing else proves that such a VM was
//! never on. The record may have been restored to the moment of its creation, or before, and the VM may have served ever since.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::create_attempts::CreateAttempts;

/// The BIOS UUIDs of these VMs, and the failed creations of the process.
#[derive(Debug, Default)]
pub struct Unfinished {
    begun: Mutex<BTreeSet<Uuid>>,
    /// Also of VMs whose UUIDs another process drew.
    makings: CreateAttempts,
}

impl Unfinished {
    /// A VM is to be created with a BIOS UUID that this process drew a moment ago, and that no VM was given before. A UUID that
    /// was only read does not count, however new it is: its source may have been restored.
    pub fn begins(&self, vm: Uuid) {
        self.all().insert(vm);
    }

    /// The VM is about to be powered on.
    pub(super) fn ends(&self, vm: Uuid) {
        self.all().remove(&vm);
    }

    pub(super) fn has(&self, vm: Uuid) -> bool {
        self.all().contains(&vm)
    }

    /// The process's failed creations, over all its commands.
    pub(super) fn makings(&self) -> &CreateAttempts {
        &self.makings
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
