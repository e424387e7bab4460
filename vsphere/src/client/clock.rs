//! The time that a change has, by a clock that runs while the machine sleeps: what was permitted before is not begun after it. Knows
//! nothing of what is asked, nor of whom.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::connection::Failed;

/// The clock of this machine, or one that a test turns. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    turned: Arc<Mutex<Duration>>,
}

impl Clock {
    /// Time since the boot, the machine's sleep included, during which Tokio's timers stand still (clock_gettime(2), `CLOCK_BOOTTIME`).
    /// All time is over where that cannot be told.
    pub fn now(&self) -> Duration {
        let turned = *self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from).saturating_add(turned)
    }

    /// Turns it on, as if the machine had slept for so long: for tests.
    pub fn sleep(&self, time: Duration) {
        let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        *turned = turned.saturating_add(time);
    }
}

/// Until when a request may be worked at.
#[derive(Clone, Debug)]
pub struct Until {
    clock: Clock,
    at: Duration,
    limit: Duration,
}

/// The time of a request was over before it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub struct Over(Duration);

impl From<Over> for Failed {
    fn from(over: Over) -> Self {
        Self::Lost(over.to_string())
    }
}

impl Until {
    /// So long from now on.
    pub fn within(clock: &Clock, limit: Duration) -> Self {
        Self { clock: clock.clone(), at: clock.now().saturating_add(limit), limit }
    }

    /// Works at a request as long as its time is not over, which is looked at each time: what connects is not written any more then.
    ///
    /// # Errors
    /// [`Over`], or the request's own.
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
