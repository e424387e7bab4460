//! How often a VM was made in vain, by the BIOS UUID that its node's VMs are made with: halves of it that were removed, each of which may
//! leave a disk, and whole ones that were never powered on. Where something spoils or removes each new one they would be made without an end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use uuid::Uuid;

/// The VMs that were begun and not powered on.
#[derive(Debug, Default)]
pub(super) struct CreateAttempts(Mutex<BTreeMap<Uuid, CreateAttempt>>);

#[derive(Clone, Debug, Default)]
pub(super) struct CreateAttempt {
    /// How many halves of it were removed since it was last seen whole.
    pub(super) halves: usize,
    /// How often it was made whole.
    pub(super) wholes: usize,
    /// When the last half was removed, or it was made whole last.
    pub(super) ended: Option<Instant>,
    /// What the last attempt to make it was answered, unless that it is made.
    pub(super) last: Option<String>,
    /// Whether what the last attempt has left is counted: its removal may be asked for more than once.
    is_counted: bool,
}

impl CreateAttempts {
    /// One is about to be made: what is there of it from now on is another one than before.
    pub(super) fn begins(&self, vm: Uuid) {
        self.all().entry(vm).or_default().is_counted = false;
    }

    /// What making one was answered: the error, if it was one.
    pub(super) fn answered(&self, vm: Uuid, error: Option<String>) {
        let mut all = self.all();
        let making = all.entry(vm).or_default();
        if error.is_none() {
            (making.wholes, making.ended) = (making.wholes + 1, Some(Instant::now()));
        }
        making.last = error;
    }

    /// Half of one is about to be removed, whoever has made it, and whatever that was answered.
    pub(super) fn removes(&self, vm: Uuid) {
        let mut all = self.all();
        let making = all.entry(vm).or_default();
        making.halves += usize::from(!making.is_counted);
        (making.is_counted, making.ended) = (true, Some(Instant::now()));
    }

    /// It is there whole: the halves that were before count no more.
    pub(super) fn is_whole(&self, vm: Uuid) {
        if let Some(making) = self.all().get_mut(&vm) {
            (making.halves, making.last) = (0, None);
        }
    }

    /// It is about to be powered on: none is made for its node from now on.
    pub(super) fn ends(&self, vm: Uuid) {
        self.all().remove(&vm);
    }

    /// What has come of it so far.
    pub(super) fn of(&self, vm: Uuid) -> Option<CreateAttempt> {
        self.all().get(&vm).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Uuid, CreateAttempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
