//! When a node counts as unhealthy or silent: one missing answer is no proof.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::MARGIN;
use crate::upgrade::context::MOMENT;

/// So many looks in a row must find it so...
const LOOKS: u32 = 3;
/// ...and for so many paces. More looks would take too long: each one waits for a node that hangs.
const PACES: u32 = 10;

/// No answer takes longer than [`MARGIN`]: a node counts as unhealthy before the wait for it ends.
const _: () = assert!(LOOKS as u64 * MARGIN.as_secs() < MOMENT.as_secs());

/// The looks in a row that have found a node so.
pub(super) struct FailureThreshold {
    lasting: Duration,
    /// How many, and when the first one was.
    row: Mutex<Option<(u32, Instant)>>,
}

impl FailureThreshold {
    /// Before the first look. `pace` is the pause between two looks.
    pub(super) fn at(pace: Duration) -> Self {
        Self { lasting: pace * PACES, row: Mutex::default() }
    }

    /// Counts a look, and returns whether its finding is believed now.
    pub(super) fn look(&self, found: bool) -> bool {
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        if !found {
            *row = None;
            return false;
        }
        let (looks, since) = row.get_or_insert_with(|| (0, Instant::now()));
        *looks += 1;
        *looks >= LOOKS && since.elapsed() >= self.lasting
    }
}
