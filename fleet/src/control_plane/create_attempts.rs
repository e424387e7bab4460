//! Counts failed attempts to create a VM, by the BIOS UUID for its node's VMs. Failed are removed incomplete VMs, each of which
//! may leave a disk, and complete VMs that were never powered on. Without a limit, VMs that are damaged or removed each time
//! would be created endlessly.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use uuid::Uuid;

/// The VMs that were begun and not powered on.
#[derive(Debug, Default)]
pub(super) struct CreateAttempts(Mutex<BTreeMap<Uuid, CreateAttempt>>);

#[derive(Clone, Debug, Default)]
pub(super) struct CreateAttempt {
    /// Incomplete VMs that were removed since it was last seen complete.
    pub(super) halves: usize,
    /// How often it was created completely.
    pub(super) wholes: usize,
    /// When the last incomplete VM was removed, or the last complete one created.
    pub(super) ended: Option<Instant>,
    /// The error of the last attempt. `None` if it succeeded.
    pub(super) last: Option<String>,
    /// Whether the result of the last attempt is counted: its removal may be requested more than once.
    is_counted: bool,
}

impl CreateAttempts {
    /// A VM is about to be created: an incomplete VM that is found from now on is a new one.
    pub(super) fn begins(&self, vm: Uuid) {
        self.all().entry(vm).or_default().is_counted = false;
    }

    /// The result of a creation: the error, if it failed.
    pub(super) fn answered(&self, vm: Uuid, error: Option<String>) {
        let mut all = self.all();
        let making = all.entry(vm).or_default();
        if error.is_none() {
            (making.wholes, making.ended) = (making.wholes + 1, Some(Instant::now()));
        }
        making.last = error;
    }

    /// An incomplete VM is about to be removed, by whichever process and with whichever result it was created.
    pub(super) fn removes(&self, vm: Uuid) {
        let mut all = self.all();
        let making = all.entry(vm).or_default();
        making.halves += usize::from(!making.is_counted);
        (making.is_counted, making.ended) = (true, Some(Instant::now()));
    }

    /// The VM is complete: former incomplete ones no longer count.
    pub(super) fn is_whole(&self, vm: Uuid) {
        if let Some(making) = self.all().get_mut(&vm) {
            (making.halves, making.last) = (0, None);
        }
    }

    /// The VM is about to be powered on: no VM is created for its node from now on.
    pub(super) fn ends(&self, vm: Uuid) {
        self.all().remove(&vm);
    }

    /// The attempts so far.
    pub(super) fn of(&self, vm: Uuid) -> Option<CreateAttempt> {
        self.all().get(&vm).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Uuid, CreateAttempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
