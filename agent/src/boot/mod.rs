//! From power-on to a node that does its part: the plan, its steps, and what may begin it anew.
//!
//! Calls everything but the faces.

pub mod corrections;
pub mod early;
mod early_access;
mod learn;
pub mod mark_healthy;
pub mod plan;
pub mod reconfigure;
pub mod reset;
pub mod run;
pub mod steps;
pub mod volumes;

use std::time::Duration;

/// What the watchdog calls the main loop.
const LOOP: &str = "the main loop";

/// How long a step, or looking at the disks, may last at the very most before
/// the agent counts as hung: checking a large, damaged file system takes its time.
const STEP: Duration = Duration::from_secs(2 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::STEP;
    use crate::host::command::LONG;

    /// The watchdog ends the agent, and with it the program.
    #[test]
    fn programs_end_before_the_watchdog_acts() {
        assert!(LONG.as_secs() + 60 < STEP.as_secs());
    }
}
