//! Limits how many large responses are in memory at once, if many servers are asked and some may be malicious. Small responses
//! are not limited. Of large ones a few are read at once, and one of each server. Knows nothing of what is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest response that needs no room, in bytes.
pub(super) const SMALL: usize = 256 << 10;

/// Room for a few large responses. Clones share it.
#[derive(Clone, Debug)]
pub struct Bodies(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    /// By server, as long as one of its responses is large or waits for room.
    each: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// The room of one response.
#[derive(Debug)]
pub(super) struct Room {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Bodies {
    /// Room for `large` responses.
    pub fn new(large: usize) -> Self {
        Self(Arc::new(Inner { all: Arc::new(Semaphore::new(large)), each: Mutex::default() }))
    }

    /// Waits for the room of a server's response. Many open requests to one server delay only that server.
    pub(super) async fn room(&self, whose: &str) -> anyhow::Result<Room> {
        let own = {
            let mut each = self.0.each.lock().unwrap_or_else(PoisonError::into_inner);
            each.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
            Arc::clone(each.entry(whose.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let own = own.acquire_owned().await.context("waiting for room")?;
        let all = Arc::clone(&self.0.all).acquire_owned().await.context("waiting for room")?;
        Ok(Room { _own: own, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn each_server_has_one_large_answer_open() {
        let bodies = Bodies::new(4);
        let (open, of_one) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = JoinSet::new();
        for number in 0..40 {
            let (bodies, open, of_one) = (bodies.clone(), Arc::clone(&open), Arc::clone(&of_one));
            all.spawn(async move {
                // Half of them are of one server.
                let whose = if number % 2 == 0 { "one".to_owned() } else { number.to_string() };
                let room = bodies.room(&whose).await.unwrap();
                let is_ones = usize::from(whose == "one");
                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                let seen = (now, of_one.fetch_add(is_ones, Ordering::SeqCst) + is_ones);
                for _ in 0..10 {
                    yield_now().await;
                }
                open.fetch_sub(1, Ordering::SeqCst);
                of_one.fetch_sub(is_ones, Ordering::SeqCst);
                drop(room);
                seen
            });
        }
        let seen = all.join_all().await;
        assert_eq!(seen.iter().map(|(open, _)| *open).max(), Some(4));
        assert!(seen.iter().all(|(_, of_one)| *of_one <= 1), "{seen:?}");
        drop(bodies.room("another").await.unwrap());
        assert!(bodies.0.each.lock().unwrap().len() <= 1, "no server is remembered");
    }
}
