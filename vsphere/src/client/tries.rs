//! How often something is tried that may be done again, and when. Knows nothing of what it is.

use std::time::Instant;

use super::Client;
use super::settings::Settings;

/// So often it is tried again at least, also where each try takes long.
const LEAST: u32 = 2;

/// Tries of something of which nothing has happened, or which may happen twice: with pauses between them, for as long as the client has
/// patience ([`Settings::patience`]).
pub struct Tries<'a> {
    settings: &'a Settings,
    begin: Instant,
    again: u32,
}

impl Client {
    /// From now on.
    pub fn tries(&self) -> Tries<'_> {
        Tries { settings: self.settings(), begin: Instant::now(), again: 0 }
    }
}

impl Tries<'_> {
    /// Waits until it may be tried again. False, at once, when it has been tried for long enough.
    pub async fn again(&mut self) -> bool {
        if self.again >= LEAST && self.begin.elapsed() >= self.settings.patience {
            return false;
        }
        self.again += 1;
        tokio::time::sleep(self.settings.pause_before(self.again)).await;
        true
    }
}
