//! What a journal says: the plan, then what was begun and done, one JSON object a line.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::Plan;

/// Which way an upgrade goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the new image.
    Forward,
    /// Back to the old one.
    Back,
    /// Towards no way back.
    Commit,
}

/// How an upgrade, or a way of it, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All nodes run the new image; the old VMs are there for a rollback.
    Upgraded,
    /// All nodes run what they ran before.
    RolledBack,
    /// The new image is final.
    Committed,
}

/// One step, by its direction and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepIndex {
    /// The direction. Journals before 0.1.0 call it a way.
    #[serde(alias = "way")]
    pub direction: Direction,
    /// The step's number in this direction, from 0.
    pub index: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The plan was decided. The first entry, and no other one.
    Planned {
        /// The plan.
        plan: Box<Plan>,
    },
    /// A step is being taken.
    Begun {
        /// The step.
        #[serde(flatten)]
        place: StepIndex,
    },
    /// A step is done.
    Done {
        /// The step.
        #[serde(flatten)]
        place: StepIndex,
        /// What it changed or found.
        note: String,
        /// The VM that it made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<Uuid>,
    },
    /// From here on it goes in another direction.
    #[serde(rename = "direction-changed", alias = "turned")]
    DirectionChanged {
        /// The direction from here on.
        #[serde(alias = "way")]
        direction: Direction,
        /// Why it changed, in one sentence.
        reason: String,
    },
    /// The last step in this direction is done.
    Ended {
        /// How it ended.
        outcome: Outcome,
    },
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When: seconds of Unix time.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Reads a journal's text.
///
/// # Errors
/// When a line is not understood, or the plan is not the first.
pub fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let read = |(number, line): (usize, &str)| -> anyhow::Result<Entry> {
        serde_json::from_str(line).with_context(|| format!("line {} is not understood", number + 1))
    };
    let entries: Vec<Entry> = text.lines().enumerate().map(read).collect::<Result<_, _>>()?;
    let plans = entries.iter().filter(|entry| matches!(entry.event, Event::Planned { .. })).count();
    if plans != 1 || plan_of(&entries).is_none() {
        bail!("it does not begin with the one plan");
    }
    Ok(entries)
}

/// The plan that a journal begins with.
pub fn plan_of(entries: &[Entry]) -> Option<&Plan> {
    match entries.first() {
        Some(Entry { event: Event::Planned { plan }, .. }) => Some(plan),
        _ => None,
    }
}

/// Where the upgrade stands: the way it goes, and its end if that is reached.
pub fn standing(entries: &[Entry]) -> (Direction, Option<Outcome>) {
    let mut standing = (Direction::Forward, None);
    for entry in entries {
        match &entry.event {
            Event::DirectionChanged { direction, .. } => standing = (*direction, None),
            Event::Ended { outcome } => standing.1 = Some(*outcome),
            _ => {}
        }
    }
    standing
}
