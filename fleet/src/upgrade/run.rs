//! Goes the way of a journal: the next step is noted, taken, and noted as done. What cannot be done now pauses the
//! run; a node that is not found good on the new image goes back; re-running is the recovery from everything else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Did, old_of, place};
use super::deployment::Deployment;
use super::entry::{Direction, Event, Order, Outcome};
use super::fenced::Fenced;
use super::fenced_nodes::FencedNodes;
use super::journal::Journal;
use super::nodes::Nodes as _;
use super::notice::Notice;
use super::pausing::Pausing;
use super::plan::{Action, Mode, OnFailure, Plan, Step};
use super::progress::Next;
use super::reason::{self, Reason};
use super::trouble::{Obstacle, Trouble, Turns, Wait};
use crate::authority::{Hold, Lost, Snapshots};

/// So many looks lie between two tries of a step that cannot be taken now.
const LOOKS_PER_TRY: u32 = 5;
/// For so many looks the cluster's API is left alone after it did not answer.
const LOOKS_WHILE_AWAY: u32 = 30;

/// Goes the way of one deployment's journal, under a hold. Whatever it changes, it changes behind the hold: it cannot
/// be made without.
pub struct Run<'a> {
    pub(super) hypervisor: Fenced<'a>,
    pub(super) nodes: FencedNodes<'a>,
    pub(super) hold: &'a Hold<'a>,
    pub(super) snapshots: &'a dyn Snapshots,
    pub(super) watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    pub(super) pace: Duration,
    ova: Option<PathBuf>,
    pause_limit: Duration,
    /// Until when the cluster's API is taken to be away.
    away_until: Mutex<Option<Instant>>,
    cancelled: watch::Receiver<bool>,
}

/// Where a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At an end.
    Ended(Outcome),
    /// It could not go on for longer than it was to wait, or nothing will change unless a person sees to it; resuming
    /// goes on.
    Paused(Reason),
    /// One node is back on its old image, by its place in the plan; a person decides how to go on.
    NodeIsBack(usize),
    /// It was cancelled; resuming goes on.
    Cancelled,
}

impl<'a> Run<'a> {
    /// A run on a deployment that is held. `ova` is where the OVA is, if it is not where the plan says.
    pub fn new(deployment: &Deployment<'a>, hold: &'a Hold<'a>, ova: Option<PathBuf>) -> Self {
        Self {
            hypervisor: Fenced::new(deployment.hypervisor, hold),
            nodes: FencedNodes::new(deployment.nodes, hold),
            hold,
            snapshots: deployment.snapshots,
            watch: deployment.watch,
            pace: deployment.pace,
            ova,
            pause_limit: deployment.pause_limit,
            away_until: Mutex::new(None),
            cancelled: deployment.cancelled.clone(),
        }
    }

    /// Goes on until the way has ended, or cannot be continued.
    ///
    /// # Errors
    /// When somebody else has taken over. Resuming goes on from there.
    pub async fn go(&self, journal: &mut Journal<'_>) -> anyhow::Result<Arrived> {
        let mut pausing = Pausing::default();
        loop {
            if let Some(arrived) = self.step(journal, &mut pausing).await? {
                return Ok(arrived);
            }
        }
    }

    /// Takes the next step, or finds that it cannot be taken now, and waits a little; says where the run has arrived
    /// when there is no next one. `pausing` is the same value for all steps of a run.
    ///
    /// # Errors
    /// As [`Run::go`].
    pub async fn step(&self, journal: &mut Journal<'_>, pausing: &mut Pausing) -> anyhow::Result<Option<Arrived>> {
        match self.try_step(journal, pausing).await {
            Ok(arrived) => Ok(arrived),
            Err(trouble) => ended(trouble).map(Some),
        }
    }

    /// The same; what is in the way of the step itself is no error here.
    async fn try_step(&self, journal: &mut Journal<'_>, pausing: &mut Pausing) -> Result<Option<Arrived>, Trouble> {
        let plan = journal.plan().clone();
        let progress = journal.progress();
        let (step, index, total, again) = match progress.next(&plan) {
            Next::Ended(outcome) => return Ok(Some(Arrived::Ended(outcome))),
            Next::NodeIsBack(node) => return Ok(Some(Arrived::NodeIsBack(node))),
            Next::End(outcome) => {
                self.note(journal, Event::Ended { outcome }).await?;
                return Ok(None);
            }
            Next::Take { step, index, total, again } => (step, index, total, again),
        };
        let obstacle = match self.take(&plan, journal, step, (index, total), again, pausing).await {
            Ok(()) => {
                *pausing = Pausing { settled: true, ..Pausing::default() };
                return Ok(None);
            }
            Err(trouble) => trouble.obstacle()?,
        };
        pausing.settled = false;
        pausing.look(&progress, step, self.most_of_a_look());
        let turns = match obstacle.turns {
            Turns::AtOnce => true,
            Turns::WhenItLasts => pausing.looked >= Duration::from_secs(plan.options.gate_seconds),
            Turns::Never => false,
        };
        // All at once, each node that is away waits for all the others.
        let is_gone = progress.direction == Direction::Back && obstacle.reason.code == reason::VM_GONE;
        let all = progress.is_at_once(&plan) && (is_gone || progress.is_any_away(&plan));
        let obstacle = match step.node.filter(|node| turns && (all || progress.is_away(*node))) {
            Some(node) => match self.goes_back(&plan, journal, node, obstacle.reason).await {
                Ok(()) => {
                    *pausing = Pausing::default();
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
        pausing: &mut Pausing,
    ) -> Result<(), Trouble> {
        self.may_go_on().await?;
        // Who ends an upgrade where it stands waits for nothing: the step says what has not settled.
        if !pausing.settled && step.action != Action::Keep {
            self.hypervisor.settle().await.map_err(|error| error.context("waiting for what was begun before"))?;
            pausing.settled = true;
        }
        let disk = self.disk_to_move(plan, journal, step).await?;
        // A step that is tried again and again is noted once, before anything of it is done; again if its disk is
        // elsewhere now.
        let moved = step.node.zip(disk.as_ref()).is_some_and(|(node, disk)| place(journal, node) != *disk);
        if !again || moved {
            self.note(journal, Event::Begun { step, disk }).await?;
        }
        if pausing.since.is_none() {
            (self.watch)(&Notice::Step { plan, step, index, total, again });
        }
        let Did { note, vm, replaced } = self.act(plan, journal, step, again).await?;
        (self.watch)(&Notice::Done { note: &note });
        self.note(journal, Event::Done { step, note, vm, replaced }).await
    }

    /// Turns the journal another way than back.
    pub(super) async fn turn(
        &self,
        journal: &mut Journal<'_>,
        direction: Direction,
        reason: Reason,
    ) -> Result<(), Trouble> {
        let (plan, only, order) = (journal.plan().clone(), None, Order::LastFirst);
        (self.watch)(&Notice::DirectionChanged { plan: &plan, direction, only, order: &order, reason: &reason });
        let event = Event::DirectionChanged { direction, only, order, left_out: BTreeSet::new(), reason };
        self.note(journal, event).await
    }

    /// Turns the journal back, without those nodes of which nothing is left that could go back.
    pub(super) async fn turn_back(
        &self,
        journal: &mut Journal<'_>,
        (only, order): (Option<usize>, Order),
        gone: BTreeSet<usize>,
        reason: Reason,
    ) -> Result<(), Trouble> {
        let (plan, direction) = (journal.plan().clone(), Direction::Back);
        let left_out = &journal.progress().left_out | &gone;
        let named = left_out.iter().map(|index| {
            let node = &plan.nodes[*index];
            format!("{} is left out, for its {} is gone", node.name, old_of(node))
        });
        let words = named.chain([reason.words]).collect::<Vec<_>>().join("; ");
        let reason = Reason::new(&reason.code, words);
        (self.watch)(&Notice::DirectionChanged { plan: &plan, direction, only, order: &order, reason: &reason });
        self.note(journal, Event::DirectionChanged { direction, only, order, left_out, reason }).await
    }

    /// Turns a node that does not work on the new image back: alone, if others are there already and nothing else
    /// was asked for.
    async fn goes_back(&self, plan: &Plan, journal: &mut Journal<'_>, node: usize, why: Reason) -> Result<(), Trouble> {
        let progress = journal.progress();
        let alone = plan.options.mode == Mode::Rolling
            && plan.options.on_failure == OnFailure::Node
            && progress.touches_others(node);
        let (only, order) = match progress.direction {
            Direction::Back => (progress.only, progress.order.clone()),
            _ => (alone.then_some(node), Order::LastFirst),
        };
        let reason = why.of(&plan.nodes[node].name);
        let gone = self.left_out(plan, &progress, only).await.map_err(|trouble| match trouble {
            Trouble::Cannot(closed) => Trouble::Cannot(Obstacle { reason: closed.reason.of(&reason.words), ..closed }),
            trouble => trouble,
        })?;
        // It goes back already: what was in the way is gone, if nobody is.
        if gone.is_empty() && progress.direction == Direction::Back {
            return Err(Trouble::elsewhere(&reason.code, reason.words));
        }
        self.turn_back(journal, (only, order), gone, reason).await
    }

    /// Waits before the next try; says where the run has arrived when it has waited for too long, or has looked again
    /// at what does not pass by itself.
    async fn pause(
        &self,
        journal: &mut Journal<'_>,
        step: Step,
        Obstacle { reason, passes, .. }: Obstacle,
        pausing: &mut Pausing,
    ) -> Result<Option<Arrived>, Trouble> {
        let looked = pausing.looked.as_secs();
        let event = Event::Paused { step, reason: reason.clone(), looked };
        if pausing.reason.as_ref() != Some(&reason) {
            (self.watch)(&Notice::Paused { reason: &reason });
            self.note(journal, event.clone()).await?;
            (pausing.reason, pausing.noted) = (Some(reason.clone()), looked);
        }
        let stands = !passes && pausing.is_final;
        pausing.is_final = !passes;
        if stands || pausing.lasts() >= self.pause_limit {
            // Whoever resumes goes on with the time that counts.
            if pausing.noted != looked {
                self.note(journal, event).await?;
            }
            return Ok(Some(Arrived::Paused(reason)));
        }
        for _ in 0..LOOKS_PER_TRY {
            self.may_go_on().await?;
            tokio::time::sleep(self.pace).await;
        }
        Ok(None)
    }

    /// Adds an entry to the journal. While that cannot be written, nothing can follow: it is tried again, for as long
    /// as the run may be paused.
    async fn note(&self, journal: &mut Journal<'_>, event: Event) -> Result<(), Trouble> {
        let started = Instant::now();
        let mut said = false;
        while let Err(error) = journal.append(event.clone()).await {
            if error.is::<Lost>() {
                return Err(Trouble::Stop(error));
            }
            let reason = Reason::new(reason::STORE, format!("{error:#}"));
            if *self.cancelled.borrow() {
                return Err(Trouble::Cancelled);
            }
            if started.elapsed() >= self.pause_limit {
                return Err(Trouble::Unwritten(reason));
            }
            if !said {
                (self.watch)(&Notice::Paused { reason: &reason });
                said = true;
            }
            tokio::time::sleep(self.pace * LOOKS_PER_TRY).await;
        }
        self.show(journal).await;
        Ok(())
    }

    /// Whether this command is still the one, and wanted.
    async fn may_go_on(&self) -> Result<(), Trouble> {
        if *self.cancelled.borrow() {
            return Err(Trouble::Cancelled);
        }
        self.hold.still().await.map_err(|lost| Trouble::Stop(lost.into()))
    }

    /// Does what takes long, for as long as this command is still the one, and wanted.
    pub(super) async fn while_wanted<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> Result<T, Trouble> {
        Ok(unless_ended(work, self.pace, || self.may_go_on()).await??)
    }

    /// Waits until `look` yields something, at most `limit`. What it says on the way is said once.
    pub(super) async fn wait<T, F>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> F + Send,
    ) -> Result<T, Trouble>
    where
        T: Send,
        F: Future<Output = Result<T, Wait>> + Send,
    {
        let (mut spent, mut last) = (Duration::ZERO, Instant::now());
        let mut said = None;
        loop {
            self.may_go_on().await?;
            let seen = look().await;
            // A command that was stopped for an hour, or slept with its machine, has not looked for an hour.
            spent += last.elapsed().min(self.most_of_a_look());
            last = Instant::now();
            match seen {
                Ok(found) => return Ok(found),
                Err(Wait::End(trouble)) => return Err(trouble),
                Err(Wait::Again(why)) if spent >= limit => {
                    return Err(why.of(format!("waited {} s for {what}", limit.as_secs())).into());
                }
                Err(Wait::Again(why)) => {
                    if said.as_ref() != Some(&why) {
                        (self.watch)(&Notice::Waiting { what, why: &why });
                        said = Some(why);
                    }
                }
            }
            tokio::time::sleep(self.pace).await;
        }
    }

    /// As how much time one look counts at most.
    pub(super) fn most_of_a_look(&self) -> Duration {
        self.pace * LOOKS_WHILE_AWAY
    }

    /// Where the OVA is.
    pub(super) fn ova<'p>(&'p self, plan: &'p Plan) -> &'p Path {
        self.ova.as_deref().unwrap_or(&plan.target.ova)
    }

    /// Lets the cluster show people the journal. While its API is away it is not asked at every entry; the next time
    /// it gets all of it.
    async fn show(&self, journal: &Journal<'_>) {
        let away = |until: Option<Instant>| *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // A command that was frozen and overtaken shows nothing over what its successor shows.
        if !self.hold.is_fresh() && self.hold.confirm().await.is_err() {
            return;
        }
        match self.nodes.publish(&shown(journal)).await {
            Ok(()) => away(None),
            Err(error) => {
                log::debug!("the cluster does not show the journal now: {error:#}");
                away(Some(Instant::now() + self.pace * LOOKS_WHILE_AWAY));
            }
        }
    }

    /// The same at the end of a command, whether or not the API was away a moment ago; nothing if it was overtaken.
    pub async fn show_last(&self, journal: &Journal<'_>) {
        if self.hold.confirm().await.is_err() {
            return;
        }
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.show(journal).await;
    }
}

/// Does what takes long, and asks meanwhile whether it may go on: what it may not is dropped where it stands.
pub(super) async fn unless_ended<T, E, F: Future<Output = Result<(), E>>>(
    work: impl Future<Output = T>,
    pace: Duration,
    may_go_on: impl Fn() -> F,
) -> Result<T, E> {
    let ended = async {
        loop {
            if let Err(ended) = may_go_on().await {
                return ended;
            }
            tokio::time::sleep(pace).await;
        }
    };
    tokio::select! {
        done = work => Ok(done),
        ended = ended => Err(ended),
    }
}

/// What the cluster shows of a journal: how far it is, and nothing that names VMs or disks.
fn shown(journal: &Journal<'_>) -> String {
    let (plan, progress) = (journal.plan(), journal.progress());
    let (done, total) = progress.count(plan);
    serde_json::json!({
        "id": plan.id, "image": plan.target.image, "direction": progress.direction, "done": done, "total": total,
        "outcome": progress.outcome, "paused": progress.paused,
    })
    .to_string()
}

/// Where a run ends with this trouble.
///
/// # Errors
/// When another command has taken over.
pub(super) fn ended(trouble: Trouble) -> anyhow::Result<Arrived> {
    match trouble {
        Trouble::Cannot(Obstacle { reason, .. }) | Trouble::Unwritten(reason) => Ok(Arrived::Paused(reason)),
        Trouble::Cancelled => Ok(Arrived::Cancelled),
        Trouble::Stop(error) => Err(error),
    }
}
