//! The time that a change has, by a clock that runs while the machine sleeps: what was permitted before is not begun after it. Knows
//! nothing of what is asked.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::connection::Failed;

/// The clock of this machine, or one that a test turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    slept: std::sync::Arc<std::sync::Mutex<Duration>>,
}

impl Clock {
    /// Time since the boot, the machine's sleep included, during which Tokio's timers stand still (clock_gettime(2), `CLOCK_BOOTTIME`).
    pub(crate) fn now(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from).saturating_add(self.turned())
    }

    #[cfg(not(test))]
    fn turned(&self) -> Duration {
        Duration::ZERO
    }

    #[cfg(test)]
    fn turned(&self) -> Duration {
        *self.slept.lock().unwrap()
    }

    /// The machine has slept for so long.
    #[cfg(test)]
    pub(crate) fn sleep(&self, time: Duration) {
        *self.slept.lock().unwrap() += time;
    }
}

/// Until when a request may be worked at.
#[derive(Clone, Debug)]
pub(super) struct Until {
    clock: Clock,
    at: Duration,
    limit: Duration,
}

impl Until {
    /// So long from now on.
    pub(super) fn within(clock: &Clock, limit: Duration) -> Self {
        Self { clock: clock.clone(), at: clock.now().saturating_add(limit), limit }
    }

    /// Works at a request as long as its time is not over, which is looked at each time: what connects is not written any more then.
    pub(super) async fn ends<T>(&self, request: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let mut request = pin!(request);
        poll_fn(|context| {
            if self.clock.now() >= self.at {
                return Poll::Ready(Err(Failed::Lost(format!("no answer within {} s", self.limit.as_secs()))));
            }
            request.as_mut().poll(context)
        })
        .await
    }
}
