//! What comes next, as a pure function of the plan and its journal: the three
//! ways, and the first step of the one that is gone that is not done.

use super::entry::{Direction, Entry, Event, Outcome, StepIndex, standing};
use super::plan::{Action, Mode, Plan, Step};

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A step is to be taken.
    Take {
        /// Where it stands.
        place: StepIndex,
        /// What it is.
        step: Step,
        /// Whether it was begun before and interrupted.
        again: bool,
    },
    /// All steps of the way are done: its end is to be noted.
    End(Outcome),
    /// It has ended.
    Ended(Outcome),
}

/// What comes next.
pub fn next(plan: &Plan, entries: &[Entry]) -> Next {
    let (direction, ended) = standing(entries);
    if let Some(outcome) = ended {
        return Next::Ended(outcome);
    }
    let steps = steps(plan, entries, direction);
    let done = |index| {
        let place = StepIndex { direction, index };
        entries.iter().any(|entry| matches!(&entry.event, Event::Done { place: done, .. } if *done == place))
    };
    let Some(index) = (0..steps.len()).find(|index| !done(*index)) else { return Next::End(end(direction)) };
    let place = StepIndex { direction, index };
    let again = entries.iter().any(|entry| matches!(entry.event, Event::Begun { place: begun } if begun == place));
    Next::Take { place, step: steps[index], again }
}

/// The steps of a way.
pub fn steps(plan: &Plan, entries: &[Entry], direction: Direction) -> Vec<Step> {
    match direction {
        Direction::Forward => plan.steps.clone(),
        Direction::Back => back(plan, entries),
        Direction::Commit => commit(plan.nodes.len()),
    }
}

fn end(direction: Direction) -> Outcome {
    match direction {
        Direction::Forward => Outcome::Upgraded,
        Direction::Back => Outcome::RolledBack,
        Direction::Commit => Outcome::Committed,
    }
}

/// The way back from wherever the way forward has come to: each node that was
/// touched gets its old VM back, with the data disk as it is now. Steps look
/// first, so one that a crash hid is not missed, and one that was not taken is not undone.
fn back(plan: &Plan, entries: &[Entry]) -> Vec<Step> {
    let mut ways: Vec<Vec<Step>> = Vec::new();
    // The node that was touched last is the one that may be ill: it comes first.
    for node in (0..plan.nodes.len()).rev() {
        let begun = |action| began(plan, entries, Step { action, node: Some(node) });
        let actions: &[Action] = if begun(Action::ShutDown) {
            use Action::{
                AttachOld, DestroyNew, DetachNew, FenceNew, GateOld, PowerOnOld, ReconnectOld, StopNew, StopOld,
            };
            &[StopOld, StopNew, FenceNew, DetachNew, AttachOld, ReconnectOld, PowerOnOld, GateOld, DestroyNew]
        } else if begun(Action::Prepare) {
            &[Action::Cancel, Action::GateOld, Action::DestroyNew]
        } else if begun(Action::Import) {
            &[Action::DestroyNew]
        } else {
            &[]
        };
        ways.push(actions.iter().map(|action| Step { action: *action, node: Some(node) }).collect());
    }
    let mut steps = ways.concat();
    if plan.options.mode == Mode::AllAtOnce {
        // All off, all on: alone, an old member of etcd would wait for the others in vain.
        steps.sort_by_key(|step| step.action);
    }
    steps
}

fn began(plan: &Plan, entries: &[Entry], step: Step) -> bool {
    let index = plan.steps.iter().position(|planned| *planned == step);
    index.is_some_and(|index| {
        let place = StepIndex { direction: Direction::Forward, index };
        entries.iter().any(|entry| matches!(entry.event, Event::Begun { place: begun } if begun == place))
    })
}

fn commit(nodes: usize) -> Vec<Step> {
    let each = |action| (0..nodes).map(move |node| Step { action, node: Some(node) });
    let check = Step { action: Action::Check, node: None };
    [check].into_iter().chain(each(Action::Commit)).chain(each(Action::DestroyOld)).collect()
}
