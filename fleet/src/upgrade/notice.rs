//! What a run tells whoever watches it.

use super::entry::Direction;
use super::plan::{Plan, Step};

/// What is happening.
#[derive(Clone, Debug)]
pub enum Notice<'a> {
    /// A step is being taken.
    Step {
        /// The plan that it is of.
        plan: &'a Plan,
        /// The step.
        step: Step,
        /// Its number on this way, from 0.
        index: usize,
        /// How many steps the way has.
        total: usize,
        /// Whether it was begun before and interrupted.
        again: bool,
    },
    /// A step is done.
    Done {
        /// What it changed or found.
        note: &'a str,
    },
    /// Something is waited for within a step.
    Waiting {
        /// What is waited for.
        what: &'a str,
        /// What stands in the way.
        why: &'a str,
    },
    /// The step cannot be taken now; it is tried again.
    Paused {
        /// Why.
        reason: &'a str,
    },
    /// From here on it goes in another direction.
    DirectionChanged {
        /// The plan.
        plan: &'a Plan,
        /// The direction from here on.
        direction: Direction,
        /// The one node that it is for; none for all.
        only: Option<usize>,
        /// Why.
        reason: &'a str,
    },
    /// Something else that people want to know.
    Said(&'a str),
}
