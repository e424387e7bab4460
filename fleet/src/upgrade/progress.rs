//! The progress of an upgrade and its next step, as a pure function of its journal. The steps of a direction are in
//! `way.rs`.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::entry::{Direction, Entry, Event, Outcome};
use super::order::Order;
use super::plan::{Action, Plan, Step};
use super::reason::WITHDRAWN;
use super::refusal::NODE_SILENT;
use crate::engine::Reason;
use crate::hypervisor::LastSeen;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The way that it goes.
    pub direction: Direction,
    /// The one node that the way is for; none for all.
    pub only: Option<usize>,
    /// The nodes that a rollback leaves out: nothing is left that could go back.
    pub left_out: BTreeSet<usize>,
    /// The order in which nodes go back, if one by one.
    pub order: Order,
    /// Its end, if it has one.
    pub outcome: Option<Outcome>,
    /// Why it waits, if its last entry is a pause.
    pub paused: Option<Reason>,
    /// Why the direction changed last, if it did.
    pub reason: Option<Reason>,
    begun: Vec<Step>,
    done: Vec<Step>,
    /// The VMs that were made, by node.
    made: BTreeMap<usize, Uuid>,
    /// BIOS UUIDs that were drawn for VMs before they are made, by node.
    drawn: BTreeMap<usize, Uuid>,
    /// The nodes whose new VMs may have been on.
    ever_on: BTreeSet<usize>,
    /// The last known place of the settings of a node's old and new VM, and the hypervisor's identifier of that
    /// datastore.
    settings: BTreeMap<(Which, usize), (String, Option<String>)>,
    /// The nodes that an operator has replaced.
    replaced: BTreeSet<usize>,
    /// The blocked step of the last entries, for how many seconds it was looked at, and when last.
    stuck: Option<(Step, u64, u64)>,
}

/// One of the two VMs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// The one that it runs in before.
    Old,
    /// The one that is made for its swap.
    New,
}

impl Which {
    /// The VM whose place a step notes: it stops that VM, powers it on or moves its work away. `None` for other steps.
    pub fn of(action: Action) -> Option<Self> {
        match action {
            Action::ShutDown | Action::PowerOnOld => Some(Self::Old),
            Action::PowerOn | Action::EvacuateNew | Action::StopNew => Some(Self::New),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A step is to be taken.
    Take {
        step: Step,
        /// Its number on this way, from 0.
        index: usize,
        /// How many steps the way has.
        total: usize,
        /// Whether it was begun before and interrupted.
        again: bool,
    },
    /// All steps of the direction are done: its end is to be noted.
    End(Outcome),
    /// One node is back on its old image, the others are where they were: the operator decides.
    NodeIsBack(usize),
    Ended(Outcome),
}

impl Progress {
    /// How far it is after these entries.
    pub fn of(plan: &Plan, entries: &[Entry]) -> Self {
        let mut progress = Self {
            direction: Direction::Forward,
            only: None,
            left_out: BTreeSet::new(),
            order: Order::LastFirst,
            outcome: None,
            paused: None,
            reason: None,
            begun: Vec::new(),
            done: Vec::new(),
            made: BTreeMap::new(),
            ever_on: BTreeSet::new(),
            settings: BTreeMap::new(),
            drawn: BTreeMap::new(),
            replaced: BTreeSet::new(),
            stuck: None,
        };
        for entry in entries {
            progress.paused = None;
            progress.stuck = match &entry.event {
                Event::Paused { step, looked, .. } => Some((*step, *looked, entry.at)),
                // Its disk is elsewhere now.
                Event::Begun { step, .. } => progress.stuck.filter(|(stuck, ..)| stuck == step),
                _ => None,
            };
            match &entry.event {
                Event::Planned { .. } => {}
                Event::Begun { step, vm, settings, datastore, .. } => {
                    progress.begun.push(*step);
                    let of = Which::of(step.action).zip(step.node);
                    let at = settings.clone().map(|settings| (settings, datastore.clone()));
                    progress.settings.extend(of.zip(at));
                    progress.ever_on.extend(step.node.filter(|_| step.action == Action::PowerOn));
                    progress.drawn.extend(step.node.zip(*vm));
                }
                Event::Done { step, vm, replaced, .. } => {
                    progress.done.push(*step);
                    progress.made.extend(step.node.zip(*vm));
                    progress.replaced.extend(step.node.filter(|_| *replaced));
                }
                Event::Paused { reason, .. } => progress.paused = Some(reason.clone()),
                Event::DirectionChanged { direction, only, order, left_out, reason } => {
                    progress.forget_who_is_back(plan);
                    (progress.direction, progress.only, progress.order) = (*direction, *only, order.clone());
                    progress.left_out.clone_from(left_out);
                    progress.outcome = None;
                    progress.reason = Some(reason.clone());
                }
                Event::Ended { outcome } => progress.outcome = Some(*outcome),
            }
        }
        progress
    }

    pub fn next(&self, plan: &Plan) -> Next {
        if let Some(outcome) = self.outcome {
            return Next::Ended(outcome);
        }
        let steps = self.steps(plan);
        match steps.iter().position(|step| !self.done.contains(step)) {
            Some(index) => {
                Next::Take { step: steps[index], index, total: steps.len(), again: self.begun.contains(&steps[index]) }
            }
            None => match (self.direction, self.only) {
                (Direction::Back, Some(node)) => Next::NodeIsBack(node),
                (direction, _) => Next::End(end(direction)),
            },
        }
    }

    /// How many steps of the direction are done, and how many it has.
    pub fn count(&self, plan: &Plan) -> (usize, usize) {
        match self.next(plan) {
            Next::Take { index, total, .. } => (index, total),
            Next::End(_) | Next::Ended(_) | Next::NodeIsBack(_) => {
                let all = self.steps(plan).len();
                (all, all)
            }
        }
    }

    /// Whether a step was begun in the present direction.
    pub fn is_begun(&self, step: Step) -> bool {
        self.begun.contains(&step)
    }

    /// For how many seconds earlier commands had looked at a blocked step, and when one did last, in seconds of Unix
    /// time.
    pub fn looked(&self, step: Step) -> Option<(u64, u64)> {
        self.stuck.filter(|(stuck, ..)| *stuck == step).map(|(_, looked, at)| (looked, at))
    }

    pub fn is_done(&self, step: Step) -> bool {
        self.done.contains(&step)
    }

    /// Whether a node is away on the way forward: its old VM is off, and the new one is not healthy yet.
    pub fn is_away(&self, node: usize) -> bool {
        self.direction == Direction::Forward
            && self.is_done(Step::of(Action::ShutDown, node))
            && !self.is_done(Step::of(Action::Gate, node))
    }

    /// Whether any node is away on the way forward.
    pub fn is_any_away(&self, plan: &Plan) -> bool {
        (0..plan.nodes.len()).any(|node| self.is_away(node))
    }

    /// The VM that was made for a node, once its import is done.
    pub fn made(&self, node: usize) -> Option<Uuid> {
        self.made.get(&node).copied()
    }

    /// The records of a node's new VM since it may run.
    pub fn new_seen(&self, node: usize) -> LastSeen<'_> {
        if self.ever_on.contains(&node) { self.seen(Which::New, node) } else { LastSeen::NeverOn }
    }

    /// The same of its old VM.
    pub fn old_seen(&self, node: usize) -> LastSeen<'_> {
        self.seen(Which::Old, node)
    }

    fn seen(&self, which: Which, node: usize) -> LastSeen<'_> {
        let at = self.settings.get(&(which, node));
        at.map_or(LastSeen::Unnoted, |(settings, datastore)| LastSeen::At(settings, datastore.as_deref()))
    }

    /// BIOS UUID of the VM that was made for a node, or is to be. No other one that carries the stamp of its swap
    /// belongs to it.
    pub fn noted(&self, node: usize) -> Option<Uuid> {
        self.made(node).or_else(|| self.drawn.get(&node).copied())
    }

    /// Whether an operator has replaced a node that was lost.
    pub fn is_replaced(&self, node: usize) -> bool {
        self.replaced.contains(&node)
    }

    /// Whether all nodes go back because none has come up. Each old VM was proved off, each new one was powered on
    /// here, and no node has answered since.
    pub fn none_came_up(&self, plan: &Plan) -> bool {
        let may_be_up = |node| {
            let (off, on) = (Step::of(Action::ShutDown, node), Step::of(Action::PowerOn, node));
            !self.is_done(off) || !self.is_begun(on) || self.is_done(Step::of(Action::Gate, node))
        };
        let for_silence = self.reason.as_ref().is_some_and(|reason| reason.code == NODE_SILENT);
        self.direction == Direction::Back
            && for_silence
            && plan.members.len() == plan.nodes.len()
            && !(0..plan.nodes.len()).any(may_be_up)
    }

    /// Whether a node's swap may have been made final: no rollback is possible then.
    pub fn is_final(&self) -> bool {
        self.begun.iter().any(|step| step.action == Action::Commit)
    }

    /// Whether anything of another node was begun.
    pub fn touches_others(&self, node: usize) -> bool {
        self.begun.iter().any(|step| step.node.is_some_and(|other| other != node))
    }

    /// Whether nothing was begun of any node except to leave it as it is: each is in the VM that the plan has found.
    pub fn is_untouched(&self) -> bool {
        self.begun.iter().all(|step| step.node.is_none() || step.action == Action::Keep)
    }

    /// Whether it ends, or has ended, for another plan to take its place: no operator has rolled it back, and it has
    /// failed at nothing.
    pub fn is_withdrawn(&self) -> bool {
        self.direction == Direction::Back && self.reason.as_ref().is_some_and(|reason| reason.code == WITHDRAWN)
    }

    /// A node whose rollback is done is where it began: nothing was begun there.
    fn forget_who_is_back(&mut self, plan: &Plan) {
        if self.direction != Direction::Back {
            return;
        }
        for node in 0..plan.nodes.len() {
            let back = self.back_of(plan, node);
            if !back.is_empty() && back.iter().all(|action| self.is_done(Step::of(*action, node))) {
                self.begun.retain(|step| step.node != Some(node));
                self.done.retain(|step| step.node != Some(node));
                self.made.remove(&node);
                self.drawn.remove(&node);
                self.ever_on.remove(&node);
                self.settings.remove(&(Which::New, node));
                self.replaced.remove(&node);
            }
        }
    }
}

fn end(direction: Direction) -> Outcome {
    match direction {
        Direction::Forward => Outcome::Upgraded,
        Direction::Back => Outcome::RolledBack,
        Direction::Commit => Outcome::Committed,
        Direction::Abandon => Outcome::Abandoned,
    }
}
