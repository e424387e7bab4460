//! The holds that this process has taken, or is taking: what is told of them by others is that the process lives.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The attempts that are under way, and the last number that was given.
static LIVING: Mutex<(BTreeSet<u64>, u64)> = Mutex::new((BTreeSet::new(), 0));

fn living() -> MutexGuard<'static, (BTreeSet<u64>, u64)> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt to take a hold, and the hold that it has led to: it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Attempt(u64);

impl Attempt {
    pub(super) fn begin() -> Self {
        let mut living = living();
        living.1 += 1;
        let number = living.1;
        living.0.insert(number);
        Self(number)
    }

    /// Its number, which no other attempt of this process has as long as its program is not begun anew in it (execve(2)): that one counts
    /// from 1 again, and an attempt of before that has the number of one that lives counts as living. Who begins programs anew tells their
    /// holds apart by another name of the holder.
    pub(super) fn number(&self) -> u64 {
        self.0
    }

    /// Whether the one of this number has not ended.
    pub(super) fn lives(number: u64) -> bool {
        living().0.contains(&number)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        living().0.remove(&self.0);
    }
}
