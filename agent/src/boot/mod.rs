//! The boot: from power-on to a working node. It contains the plan, its steps, and resets that start it again.

pub mod corrections;
pub mod early;
mod early_access;
mod learn;
pub mod mark_healthy;
pub mod plan;
pub mod reset;
pub mod run;
pub mod steps;
pub mod volumes;

use std::time::Duration;

/// The watchdog's name of the main loop.
const LOOP: &str = "the main loop";

/// How long a step or an examination of the disks may last before the agent counts as hung. Checking a large, damaged
/// file system takes long.
const STEP: Duration = Duration::from_secs(2 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::STEP;
    use crate::host::command::LONG;

    /// The watchdog ends the agent and its child processes.
    #[test]
    fn programs_end_before_the_watchdog_acts() {
        assert!(LONG.as_secs() + 60 < STEP.as_secs());
    }
}
