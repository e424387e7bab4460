//! Limits that all clients of one vCenter share: the requests at once, and the order of changes of an object. The
//! module knows nothing of sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::Settings;
use super::turns::ObjectLocks;

/// The limits of requests, of tasks and of imports at once, and the locks of objects. All clients of one vCenter are
/// made with it, one after the other. An earlier one may still be working. Clones are the same limits.
#[derive(Clone, Default)]
pub struct Limits {
    calls: Arc<Limit>,
    tasks: Arc<Limit>,
    imports: Arc<Limit>,
    turns: Arc<ObjectLocks>,
}

impl Limits {
    /// Sets the limits to the settings, also for callers that wait. If fewer are allowed than are under way, none is
    /// ended.
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

/// A number of slots, given to callers in the order of their requests.
pub(super) struct Limit {
    places: Arc<Semaphore>,
    size: Mutex<Size>,
}

#[derive(Default)]
struct Size {
    /// The number of slots to have.
    of: usize,
    /// The slots in excess of it. All of them are taken; when one comes back, it is discarded.
    surplus: usize,
}

/// Starts without slots.
impl Default for Limit {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(0)), size: Mutex::default() }
    }
}

impl Limit {
    /// Waits until a slot is free.
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

/// A slot that is taken while this exists.
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
            // The size is locked meanwhile, so a limit that shrinks finds this slot free or counts it as taken.
            None => drop(permit),
        }
    }
}
