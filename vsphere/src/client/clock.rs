//! The time limit of a change, by a clock that also runs while the machine sleeps. After the limit, a permitted request
//! is not started. The module knows nothing of requests or servers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::connection::Failed;

/// The clock of this machine, or one that a test advances. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    turned: Arc<Mutex<Duration>>,
}

impl Clock {
    /// Time since the boot, including the machine's sleep, during which Tokio's timers pause (clock_gettime(2),
    /// `CLOCK_BOOTTIME`). If it cannot be read, all limits are over.
    pub fn now(&self) -> Duration {
        let turned = *self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from).saturating_add(turned)
    }

    /// Advances the clock as if the machine had slept for `time`: for tests.
    pub fn sleep(&self, time: Duration) {
        let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        *turned = turned.saturating_add(time);
    }
}

/// The deadline of a request.
#[derive(Clone, Debug)]
pub struct Until {
    clock: Clock,
    at: Duration,
    limit: Duration,
}

/// The time of a request ended before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub struct Over(Duration);

impl From<Over> for Failed {
    fn from(over: Over) -> Self {
        Self::Lost(over.to_string())
    }
}

impl Until {
    /// A deadline `limit` from now.
    pub fn within(clock: &Clock, limit: Duration) -> Self {
        Self { clock: clock.clone(), at: clock.now().saturating_add(limit), limit }
    }

    /// Polls a request until its deadline, which is checked at each poll. A connection that completes later sends no
    /// request.
    pub async fn ends<T, E: From<Over>>(&self, request: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut request = pin!(request);
        poll_fn(|context| {
            if self.clock.now() >= self.at {
                return Poll::Ready(Err(Over(self.limit).into()));
            }
            request.as_mut().poll(context)
        })
        .await
    }
}
