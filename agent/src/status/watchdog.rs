//! Notifies systemd's watchdog (sd_notify(3), `WATCHDOG=1`). Each essential part sets a time until which it will report
//! again, and systemd is notified only while no part is overdue. If a part hangs, systemd therefore kills the agent,
//! which starts again with its plan.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The watched parts and the times when they are overdue. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Watchdog {
    parts: Arc<Mutex<Vec<(&'static str, Instant)>>>,
}

impl Watchdog {
    /// Begins to notify systemd, if the unit requires it (`WatchdogSec=`).
    pub(super) fn start(&self) {
        let Some(limit) = sd_notify::watchdog_enabled() else { return };
        let own = self.clone();
        let started = thread::Builder::new().name("watchdog".to_owned()).spawn(move || own.tell(limit / 3));
        if let Err(error) = started {
            log::error!("starting the watchdog: {error}");
        }
    }

    /// The part is alive and will report again before `due`.
    pub(super) fn alive(&self, part: &'static str, due: Instant) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.iter_mut().find(|(name, _)| *name == part) {
            Some((_, until)) => *until = due,
            None => parts.push((part, due)),
        }
    }

    fn tell(&self, every: Duration) {
        loop {
            match self.overdue(Instant::now()) {
                None => {
                    if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
                        log::warn!("telling systemd that the agent is alive: {error}");
                    }
                }
                Some(name) => log::error!("{name} hangs: systemd will end the agent and start it again"),
            }
            thread::sleep(every);
        }
    }

    fn overdue(&self, now: Instant) -> Option<&'static str> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().find(|(_, due)| *due < now).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_overdue_part_is_detected_and_named() {
        let watchdog = Watchdog::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watchdog.overdue(at(1000)), None, "nothing is under watch yet");
        watchdog.alive("the main loop", at(600));
        watchdog.clone().alive("the watch", at(60));
        assert_eq!(watchdog.overdue(at(50)), None);
        assert_eq!(watchdog.overdue(at(70)), Some("the watch"));
        watchdog.alive("the watch", at(120));
        assert_eq!(watchdog.overdue(at(70)), None);
        watchdog.alive("the main loop", at(10));
        assert_eq!(watchdog.overdue(at(20)), Some("the main loop"));
    }
}
