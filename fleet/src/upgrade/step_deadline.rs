//! For how long a step could not be taken. Only the time in which the step was looked at counts against a node that is
//! away, over all commands.

use std::time::Duration;

use tokio::time::Instant;

use super::plan::Step;
use super::progress::Progress;
use crate::engine::Reason;
use crate::timestamp;

/// How a run does with its next step.
#[derive(Debug, Default)]
pub struct StepDeadline {
    /// Since when it cannot be taken.
    pub(super) since: Option<Instant>,
    /// When that was seen last.
    pub(super) last: Option<Instant>,
    /// For how long the step was looked at: this counts against a node that is away.
    pub(super) looked: Duration,
    /// How many seconds of that are noted.
    pub(super) noted: u64,
    pub(super) reason: Option<Reason>,
    /// Whether the last look found an obstacle that does not pass by itself.
    pub(super) is_final: bool,
    /// Whether all earlier requests have ended.
    pub(super) settled: bool,
}

impl StepDeadline {
    /// For how long this command has waited.
    pub(super) fn lasts(&self) -> Duration {
        self.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Counts the time since the last look at a step that cannot be taken, `most` at most. Time without looks, because
    /// the command was stopped or none ran, does not count.
    pub(super) fn look(&mut self, progress: &Progress, step: Step, most: Duration) {
        let passed = if let Some(last) = self.last {
            last.elapsed()
        } else {
            let (looked, at) = progress.looked(step).unwrap_or((0, u64::MAX));
            self.looked = Duration::from_secs(looked);
            Duration::from_secs(timestamp::now().saturating_sub(at))
        };
        self.looked += passed.min(most);
        self.last = Some(Instant::now());
        self.since.get_or_insert_with(Instant::now);
    }
}
