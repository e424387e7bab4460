//! What all clients of one vCenter share: how much is asked at once, and whose turn it is to change an object. Knows nothing of sessions.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::settings::Settings;
use super::turns::Turns;

/// The limits of requests, of tasks and of imports at once, and the turns, for all clients that are made with it: those of one vCenter, one after the
/// other, of which an earlier one may still be at work. Clones are the same.
#[derive(Clone, Default)]
pub struct Limits {
    calls: Limit,
    tasks: Limit,
    imports: Limit,
    turns: Arc<Turns>,
}

impl Limits {
    /// As settings have them, from now on. Of what is under way more is waited for, nothing is ended.
    pub(super) fn set(&self, settings: &Settings) {
        self.calls.set(settings.calls);
        self.tasks.set(settings.tasks);
        self.imports.set(settings.imports);
    }

    pub(super) fn calls(&self) -> &Arc<Semaphore> {
        &self.calls.places
    }

    pub(super) fn tasks(&self) -> &Semaphore {
        &self.tasks.places
    }

    pub(super) fn imports(&self) -> &Semaphore {
        &self.imports.places
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }
}

#[derive(Clone)]
struct Limit {
    places: Arc<Semaphore>,
    size: Arc<Mutex<usize>>,
}

/// No place yet.
impl Default for Limit {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(0)), size: Arc::default() }
    }
}

impl Limit {
    fn set(&self, to: usize) {
        let to = to.clamp(1, u32::MAX as usize >> 3);
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        match to.cmp(&size) {
            Ordering::Greater => self.places.add_permits(to - *size),
            Ordering::Less => self.forget(*size - to),
            Ordering::Equal => {}
        }
        *size = to;
    }

    /// Takes places away: those that are taken as they come back, before anybody gets them who asks from now on.
    fn forget(&self, places: usize) {
        let taken = places - self.places.forget_permits(places);
        let Some(taken) = u32::try_from(taken).ok().filter(|taken| *taken > 0) else { return };
        let waiting = Arc::clone(&self.places).acquire_many_owned(taken);
        tokio::spawn(async move {
            if let Ok(places) = waiting.await {
                places.forget();
            }
        });
    }
}
