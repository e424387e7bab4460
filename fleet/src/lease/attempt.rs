//! The leases that this process has taken, or is taking. Other processes only see that this process lives.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running attempts, and the last number that was given.
static LIVING: Mutex<(BTreeSet<u64>, u64)> = Mutex::new((BTreeSet::new(), 0));

fn living() -> MutexGuard<'static, (BTreeSet<u64>, u64)> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt to acquire a lease, and the lease that resulted. It ends when it is dropped.
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

    /// A number that no other attempt of this process has. It counts from 1 again if the program re-executes itself
    /// (execve(2)). A former attempt then counts as alive if a new one has its number. So such a program changes its
    /// holder name with each re-execution.
    pub(super) fn number(&self) -> u64 {
        self.0
    }

    /// Whether the attempt with this number has not ended.
    pub(super) fn lives(number: u64) -> bool {
        living().0.contains(&number)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        living().0.remove(&self.0);
    }
}
