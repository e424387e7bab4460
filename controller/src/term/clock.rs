//! Clocks: one for how long something lasts, and one for what time it is.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

/// Both clocks of this machine, or those of a test.
#[derive(Clone, Debug, Default)]
pub struct Clock(Kind);

#[derive(Clone, Debug, Default)]
enum Kind {
    #[default]
    Machine,
    #[cfg(test)]
    Tests(tokio::time::Instant, Timestamp),
}

impl Clock {
    /// A test's, which goes as Tokio's does, from the beginning of 2027.
    #[cfg(test)]
    pub fn of_tests() -> Self {
        Self(Kind::Tests(tokio::time::Instant::now(), "2027-01-01T00:00:00Z".parse().expect("a time")))
    }

    /// Time since some moment, the machine's sleep included. Neither a change of the clock nor a suspended machine makes old
    /// values look fresh (clock_gettime(2), `CLOCK_BOOTTIME`).
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::Machine => clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or(Duration::MAX),
            #[cfg(test)]
            Kind::Tests(start, _) => start.elapsed(),
        }
    }

    /// The current time, to the second.
    pub fn time(&self) -> Time {
        let now = match &self.0 {
            Kind::Machine => Timestamp::now(),
            #[cfg(test)]
            Kind::Tests(start, time) => {
                let elapsed = i64::try_from(start.elapsed().as_secs()).unwrap_or(i64::MAX);
                Timestamp::from_second(time.as_second() + elapsed).unwrap_or(Timestamp::MAX)
            }
        };
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }
}
