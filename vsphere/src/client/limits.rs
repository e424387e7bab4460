//! What all clients of one vCenter share: how much is asked at once, and whose turn it is to change an object. Knows nothing of sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::Settings;
use super::turns::ObjectLocks;

/// The limits of requests, of tasks and of imports at once, and the turns, for all clients that are made with it: those of one vCenter, one after the
/// other, of which an earlier one may still be at work. Clones are the same.
#[derive(Clone, Default)]
pub struct Limits {
    calls: Arc<Limit>,
    tasks: Arc<Limit>,
    imports: Arc<Limit>,
    turns: Arc<ObjectLocks>,
}

impl Limits {
    /// As settings have them, from now on, also for those who wait. Of what is under way more is waited for, nothing is ended.
    pub(super) fn set(&self, settings: &Settings) {
        self.calls.set(settings.calls);
        self.tasks.set(settings.tasks);
        self.imports.set(settings.imports);
    }

    pub(super) fn calls(&self) -> &Arc<Limit> {
        &self.calls
    }

    pub(super) fn tasks(&self) -> &Arc<Limit> {
        &self.tasks
    }

    pub(super) fn imports(&self) -> &Arc<Limit> {
        &self.imports
    }

    pub(super) fn turns(&self) -> &ObjectLocks {
        &self.turns
    }
}

/// So many at once, first come, first served.
pub(super) struct Limit {
    places: Arc<Semaphore>,
    size: Mutex<Size>,
}

#[derive(Default)]
struct Size {
    /// How many places there are to be.
    of: usize,
    /// How many more there are: all of them are taken, and none is given to the next one when it comes back.
    surplus: usize,
}

/// No place yet.
impl Default for Limit {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(0)), size: Mutex::default() }
    }
}

impl Limit {
    /// Waits until a place is free.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Taken> {
        let permit = self.places.clone().acquire_owned().await.ok()?;
        Some(Taken { limit: Arc::clone(self), permit: Some(permit) })
    }

    fn set(&self, to: usize) {
        let to = to.clamp(1, Semaphore::MAX_PERMITS);
        let mut size = self.size();
        if to >= size.of {
            let more = to - size.of;
            let kept = more.min(size.surplus);
            size.surplus -= kept;
            self.places.add_permits(more - kept);
        } else {
            let fewer = size.of - to;
            size.surplus += fewer - self.places.forget_permits(fewer);
        }
        size.of = to;
    }

    fn size(&self) -> MutexGuard<'_, Size> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken for as long as this lasts.
pub(crate) struct Taken {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut size = self.limit.size();
        match size.surplus.checked_sub(1) {
            Some(left) => {
                size.surplus = left;
                permit.forget();
            }
            // While the size stays as it is: one that shrinks finds this place free, or counts it as taken.
            None => drop(permit),
        }
    }
}
