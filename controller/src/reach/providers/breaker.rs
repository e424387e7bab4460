//! Backs off from a server that fails repeatedly. Pure: the time is a parameter.

use std::time::Duration;

/// The number of consecutive failures before the first back-off.
const PATIENCE: u32 = 3;
/// The first back-off. Each further one is twice as long, up to `LONGEST`.
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    failures: u32,
    until: Duration,
    why: String,
}

impl Breaker {
    pub fn failed(&mut self, now: Duration, why: &str) {
        self.failures = self.failures.saturating_add(1);
        why.clone_into(&mut self.why);
        if let Some(further) = self.failures.checked_sub(PATIENCE) {
            self.until = now + (SHORTEST * 2_u32.pow(further.min(8))).min(LONGEST);
        }
    }

    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// The time left until it may be called again, and the last error. `None` if it may be called now.
    pub fn rests(&self, now: Duration) -> Option<(Duration, &str)> {
        let left = self.until.saturating_sub(now);
        (!left.is_zero()).then_some((left, self.why.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_double_the_back_off() {
        let (mut breaker, mut now) = (Breaker::default(), Duration::from_secs(1));
        let mut rests = Vec::new();
        for _ in 0..9 {
            assert_eq!(breaker.rests(now), None);
            breaker.failed(now, "no route");
            let rest = breaker.rests(now).map_or(Duration::ZERO, |(left, why)| {
                assert_eq!(why, "no route");
                left
            });
            rests.push(rest.as_secs());
            now += rest;
        }
        assert_eq!(rests, [0, 0, 15, 30, 60, 120, 240, 300, 300]);
        breaker.answered();
        breaker.failed(now, "once");
        assert_eq!(breaker.rests(now), None);
        for _ in 0..u16::MAX {
            breaker.failed(now, "for ever");
        }
        assert_eq!(breaker.rests(now).unwrap().0, LONGEST);
    }
}
