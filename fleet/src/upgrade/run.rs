//! Runs an upgrade: writes each step to the journal, runs it, writes its result. A step that cannot be taken now pauses
//! the run. A node that is not healthy on the new image goes back. To recover from everything else, run it again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::act::{StepOutcome, Touched, old_of, place};
use super::context::StepContext;
use super::entry::{Direction, Event, Outcome};
use super::journal::Journal;
use super::nodes::Nodes as _;
use super::notice::Notice;
use super::order::Order;
use super::plan::{Action, Mode, OnFailure, Plan, Step};
use super::progress::Next;
use super::reason;
use super::step_deadline::StepDeadline;
use super::step_error::{Obstacle, RollbackTrigger, StepError};
use crate::engine::{Reason, STORE};
use crate::lease::Lost;

/// The number of looks between two tries of a blocked step.
const LOOKS_PER_TRY: u32 = 5;

/// Runs the steps of one deployment's journal, under a lease. Each change needs the lease: a run cannot be made
/// without.
pub struct Run<'a> {
    pub(super) context: StepContext<'a>,
    /// Until then the cluster's API counts as away.
    away_until: Mutex<Option<Instant>>,
}

/// Where a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    Ended(Outcome),
    /// It was blocked for longer than it was to wait, or nothing will change without the operator. Resuming goes on.
    Paused(Reason),
    /// One node is back on its old image, by its place in the plan; the operator decides how to go on.
    NodeIsBack(usize),
    /// It was cancelled; resuming goes on.
    Cancelled,
}

impl<'a> Run<'a> {
    /// A run on a deployment that is held.
    pub(super) fn new(context: StepContext<'a>) -> Self {
        Self { context, away_until: Mutex::default() }
    }

    /// Goes on until the way has ended, or cannot be continued.
    ///
    /// # Errors
    /// When another command has taken over. Resuming goes on from there.
    pub async fn go(&self, journal: &mut Journal<'_>) -> anyhow::Result<RunOutcome> {
        let mut pausing = StepDeadline::default();
        loop {
            if let Some(arrived) = self.step(journal, &mut pausing).await? {
                return Ok(arrived);
            }
        }
    }

    /// Takes the next step. If it cannot be taken now, waits a little. Returns the outcome when there is no next one.
    /// `pausing` is the same value for all steps of a run.
    pub async fn step(
        &self,
        journal: &mut Journal<'_>,
        pausing: &mut StepDeadline,
    ) -> anyhow::Result<Option<RunOutcome>> {
        match self.try_step(journal, pausing).await {
            Ok(arrived) => Ok(arrived),
            Err(trouble) => ended(trouble).map(Some),
        }
    }

    /// As [`Self::step`], but a failure other than a blocked step is returned as a [`StepError`].
    async fn try_step(
        &self,
        journal: &mut Journal<'_>,
        pausing: &mut StepDeadline,
    ) -> Result<Option<RunOutcome>, StepError> {
        let plan = journal.plan().clone();
        let progress = journal.progress();
        let (step, index, total, again) = match progress.next(&plan) {
            Next::Ended(outcome) => return Ok(Some(RunOutcome::Ended(outcome))),
            Next::NodeIsBack(node) => return Ok(Some(RunOutcome::NodeIsBack(node))),
            Next::End(outcome) => {
                self.note(journal, Event::Ended { outcome }).await?;
                return Ok(None);
            }
            Next::Take { step, index, total, again } => (step, index, total, again),
        };
        let obstacle = match self.take(&plan, journal, step, (index, total), again, pausing).await {
            Ok(()) => {
                *pausing = StepDeadline { settled: true, ..StepDeadline::default() };
                return Ok(None);
            }
            Err(trouble) => trouble.obstacle()?,
        };
        pausing.settled = false;
        pausing.look(&progress, step, self.context.most_of_a_look());
        let turns = match obstacle.turns {
            RollbackTrigger::AtOnce => true,
            RollbackTrigger::WhenItLasts => pausing.looked >= Duration::from_secs(plan.options.gate_seconds),
            RollbackTrigger::Never => false,
        };
        // All at once, each node that is away waits for all the others.
        let is_gone = progress.direction == Direction::Back && obstacle.reason.code == reason::VM_GONE;
        let all = progress.is_at_once(&plan) && (is_gone || progress.is_any_away(&plan));
        let obstacle = match step.node.filter(|node| turns && (all || progress.is_away(*node))) {
            Some(node) => match self.goes_back(&plan, journal, node, obstacle.reason).await {
                Ok(()) => {
                    *pausing = StepDeadline::default();
                    return Ok(None);
                }
                Err(trouble) => trouble.obstacle()?,
            },
            None => obstacle,
        };
        self.pause(journal, step, obstacle, pausing).await
    }

    /// Takes a step, noted before and after.
    async fn take(
        &self,
        plan: &Plan,
        journal: &mut Journal<'_>,
        step: Step,
        (index, total): (usize, usize),
        again: bool,
        pausing: &mut StepDeadline,
    ) -> Result<(), StepError> {
        self.context.may_go_on().await?;
        // Abandoning an upgrade waits for nothing: the step says what has not settled.
        if !pausing.settled && step.action != Action::Keep {
            self.context.settle().await?;
            pausing.settled = true;
        }
        let Touched { disk, datastore, settings } = self.context.touched(plan, journal, step).await?;
        // A step that is tried again and again is noted once, before anything of it is done; again if its disk is
        // elsewhere now.
        let moved = step.node.zip(disk.as_ref()).is_some_and(|(node, disk)| place(journal, node) != *disk);
        if !again || moved {
            // A VM that the step has begun to create keeps its BIOS UUID.
            let makes = step.node.filter(|_| step.action == Action::CloneVm);
            let vm = makes.filter(|node| journal.progress().noted(*node).is_none()).map(|_| Uuid::new_v4());
            let copy = self.context.copy_to_make(plan, journal, step);
            self.note(journal, Event::Begun { step, disk, vm, copy, datastore, settings }).await?;
        }
        if pausing.since.is_none() {
            (self.context.watch)(&Notice::Step { plan, step, index, total, again });
        }
        let StepOutcome { note, vm, replaced, copies } = self.context.act(plan, journal, step).await?;
        (self.context.watch)(&Notice::Done { note: &note });
        self.note(journal, Event::Done { step, note, vm, replaced, copies }).await
    }

    /// Turns the journal another way than back.
    pub(super) async fn turn(
        &self,
        journal: &mut Journal<'_>,
        direction: Direction,
        reason: Reason,
    ) -> Result<(), StepError> {
        self.turn_to(journal, direction, (None, Order::LastFirst), BTreeSet::new(), reason).await
    }

    /// Turns the journal back, without those nodes that have nothing left to go back to.
    pub(super) async fn turn_back(
        &self,
        journal: &mut Journal<'_>,
        turn: (Option<usize>, Order),
        gone: BTreeSet<usize>,
        reason: Reason,
    ) -> Result<(), StepError> {
        let plan = journal.plan();
        let left_out = &journal.progress().left_out | &gone;
        let named = left_out.iter().map(|index| {
            let node = &plan.nodes[*index];
            format!("{} is left out, for its {} is gone", node.name, old_of(node))
        });
        let words = named.chain([reason.words]).collect::<Vec<_>>().join("; ");
        self.turn_to(journal, Direction::Back, turn, left_out, Reason::new(&reason.code, words)).await
    }

    async fn turn_to(
        &self,
        journal: &mut Journal<'_>,
        direction: Direction,
        (only, order): (Option<usize>, Order),
        left_out: BTreeSet<usize>,
        reason: Reason,
    ) -> Result<(), StepError> {
        let plan = journal.plan();
        (self.context.watch)(&Notice::DirectionChanged { plan, direction, only, order: &order, reason: &reason });
        self.note(journal, Event::DirectionChanged { direction, only, order, left_out, reason }).await
    }

    /// Turns a node that does not work on the new image back: alone, if others run it already and nothing else was
    /// asked for.
    async fn goes_back(
        &self,
        plan: &Plan,
        journal: &mut Journal<'_>,
        node: usize,
        why: Reason,
    ) -> Result<(), StepError> {
        let progress = journal.progress();
        let alone = plan.options.mode == Mode::Rolling
            && plan.options.on_failure == OnFailure::Node
            && progress.touches_others(node);
        let (only, order) = match progress.direction {
            Direction::Back => (progress.only, progress.order.clone()),
            _ => (alone.then_some(node), Order::LastFirst),
        };
        let reason = why.of(&plan.nodes[node].name);
        let gone = self.context.left_out(plan, &progress, only).await.map_err(|trouble| match trouble {
            StepError::Cannot(closed) => {
                StepError::Cannot(Obstacle { reason: closed.reason.of(&reason.words), ..closed })
            }
            trouble => trouble,
        })?;
        // It goes back already: the obstacle is gone, if no node is.
        if gone.is_empty() && progress.direction == Direction::Back {
            return Err(StepError::elsewhere(&reason.code, reason.words));
        }
        self.turn_back(journal, (only, order), gone, reason).await
    }

    /// Waits before the next try. Returns the outcome when it has waited for too long, or has looked again at an error
    /// that does not pass by itself.
    async fn pause(
        &self,
        journal: &mut Journal<'_>,
        step: Step,
        Obstacle { reason, passes, .. }: Obstacle,
        pausing: &mut StepDeadline,
    ) -> Result<Option<RunOutcome>, StepError> {
        let looked = pausing.looked.as_secs();
        let event = Event::Paused { step, reason: reason.clone(), looked };
        if pausing.reason.as_ref() != Some(&reason) {
            (self.context.watch)(&Notice::Paused { reason: &reason });
            self.note(journal, event.clone()).await?;
            (pausing.reason, pausing.noted) = (Some(reason.clone()), looked);
        }
        let stands = !passes && pausing.is_final;
        pausing.is_final = !passes;
        if stands || pausing.lasts() >= self.context.pause_limit {
            // The next command continues this count.
            if pausing.noted != looked {
                self.note(journal, event).await?;
            }
            return Ok(Some(RunOutcome::Paused(reason)));
        }
        for _ in 0..LOOKS_PER_TRY {
            self.context.may_go_on().await?;
            tokio::time::sleep(self.context.pace).await;
        }
        self.context.rest(Duration::ZERO).await?;
        Ok(None)
    }

    /// Adds an entry to the journal. While that cannot be written, nothing can follow: it is tried again, for as long
    /// as the run may be paused.
    pub(super) async fn note(&self, journal: &mut Journal<'_>, event: Event) -> Result<(), StepError> {
        let (context, started, mut said) = (&self.context, Instant::now(), false);
        while let Err(error) = journal.append(event.clone()).await {
            if error.is::<Lost>() {
                return Err(StepError::Stop(error));
            }
            let reason = Reason::new(STORE, format!("{error:#}"));
            if *context.cancelled.borrow() {
                return Err(StepError::Cancelled);
            }
            if started.elapsed() >= context.pause_limit {
                return Err(StepError::JournalUnwritable(reason));
            }
            if !said {
                (context.watch)(&Notice::Paused { reason: &reason });
                said = true;
            }
            context.rest(context.pace * LOOKS_PER_TRY).await?;
        }
        self.show(journal).await;
        Ok(())
    }

    /// Lets the cluster show users the journal. While its API is away it is not asked at every entry; the next time it
    /// gets all of it.
    async fn show(&self, journal: &Journal<'_>) {
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // A command that was frozen and overtaken does not overwrite its successor's status.
        if !self.context.hold.is_fresh() && self.context.hold.confirm().await.is_err() {
            return;
        }
        let shown = self.context.nodes.publish(&shown(journal)).await;
        if let Err(error) = &shown {
            log::debug!("the cluster does not show the journal now: {error:#}");
        }
        let until = shown.is_err().then(|| Instant::now() + self.context.most_of_a_look());
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Lets the cluster show the journal at the end of a command, even if its API was away a moment ago. Does nothing if
    /// the command was overtaken.
    pub async fn show_last(&self, journal: &Journal<'_>) {
        if self.context.hold.confirm().await.is_err() {
            return;
        }
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.show(journal).await;
    }
}

/// The public part of a journal: how far it is, and nothing that names VMs or disks.
fn shown(journal: &Journal<'_>) -> String {
    let (plan, progress) = (journal.plan(), journal.progress());
    let (done, total) = progress.count(plan);
    serde_json::json!({
        "id": plan.id, "image": plan.target.image, "direction": progress.direction, "done": done, "total": total,
        "outcome": progress.outcome, "paused": progress.paused,
    })
    .to_string()
}

/// The outcome of a run that ends with this error.
///
/// # Errors
/// When another command has taken over.
pub(super) fn ended(trouble: StepError) -> anyhow::Result<RunOutcome> {
    match trouble {
        StepError::Cannot(Obstacle { reason, .. }) | StepError::JournalUnwritable(reason) => {
            Ok(RunOutcome::Paused(reason))
        }
        StepError::Cancelled => Ok(RunOutcome::Cancelled),
        StepError::Stop(error) => Err(error),
    }
}
