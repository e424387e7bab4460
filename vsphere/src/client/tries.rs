//! The number and the times of attempts of repeatable work. The module knows nothing of the work.

use std::time::Instant;

use super::Client;
use super::settings::Settings;

/// The least number of repetitions, even if each attempt takes long.
const LEAST: u32 = 2;

/// Attempts of work that did nothing, or that may be done twice. They have pauses between them, and end after the
/// client's patience ([`Settings::patience`]).
pub struct Tries<'a> {
    settings: &'a Settings,
    begin: Instant,
    again: u32,
}

impl Client {
    /// Attempts that begin now.
    pub fn tries(&self) -> Tries<'_> {
        Tries { settings: self.settings(), begin: Instant::now(), again: 0 }
    }
}

impl Tries<'_> {
    /// Waits for the next attempt. Returns `false` at once if the patience is over.
    pub async fn again(&mut self) -> bool {
        if self.again >= LEAST && self.begin.elapsed() >= self.settings.patience {
            return false;
        }
        self.again += 1;
        tokio::time::sleep(self.settings.pause_before(self.again)).await;
        true
    }
}
