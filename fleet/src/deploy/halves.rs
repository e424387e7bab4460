//! How often half a VM was removed, by the BIOS UUID that its node's VMs are made with: each may leave a disk, and where something spoils
//! each new one they would be made without an end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use uuid::Uuid;

/// The VMs of which halves were removed, and those that are being made.
#[derive(Debug, Default)]
pub(super) struct Halves(Mutex<BTreeMap<Uuid, Half>>);

/// What has come of the attempts to make one.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    /// How many halves of it were removed.
    pub(super) times: usize,
    /// When the last one was.
    pub(super) removed: Option<Instant>,
    /// What the last attempt to make it was answered, unless that it is made.
    pub(super) last: Option<String>,
    /// Whether what the last attempt has left is counted: its removal may be asked for more than once.
    is_counted: bool,
}

impl Halves {
    /// One is about to be made: what is there of it from now on is another one than before.
    pub(super) fn begins(&self, vm: Uuid) {
        self.all().entry(vm).or_default().is_counted = false;
    }

    /// What making one was answered: the error, if it was one.
    pub(super) fn answered(&self, vm: Uuid, error: Option<String>) {
        self.all().entry(vm).or_default().last = error;
    }

    /// Half of one is about to be removed, whoever has made it, and whatever that was answered.
    pub(super) fn removes(&self, vm: Uuid) {
        let mut all = self.all();
        let half = all.entry(vm).or_default();
        half.times += usize::from(!half.is_counted);
        (half.is_counted, half.removed) = (true, Some(Instant::now()));
    }

    /// It is there whole: what was before counts no more.
    pub(super) fn is_whole(&self, vm: Uuid) {
        self.all().remove(&vm);
    }

    /// What has come of it so far.
    pub(super) fn of(&self, vm: Uuid) -> Option<Half> {
        self.all().get(&vm).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Uuid, Half>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
