//! Goes the way of a journal: the next step is noted, taken, and noted as done. What cannot be done now pauses the
//! run; a node that is not found good on the new image goes back; re-running is the recovery from everything else.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::act::Did;
use super::entry::{Direction, Event, Outcome};
use super::fenced::Fenced;
use super::journal::Journal;
use super::nodes::Nodes;
use super::notice::Notice;
use super::plan::{Mode, OnFailure, Plan, Step};
use super::progress::Next;
use crate::authority::{Hold, Lost};
use crate::hypervisor::{Error, Kind};
use crate::node::told;

/// So many looks lie between two tries of a step that cannot be taken now.
const LOOKS_PER_TRY: u32 = 5;
/// For so many looks the cluster's API is left alone after it did not answer.
const LOOKS_WHILE_AWAY: u32 = 30;

/// What a run needs.
pub struct Run<'a> {
    /// Where the VMs are: behind the hold.
    pub hypervisor: &'a Fenced<'a>,
    /// The nodes and their cluster.
    pub nodes: &'a dyn Nodes,
    /// The hold on the deployment.
    pub hold: &'a Hold<'a>,
    /// The OVA, if it is not where the plan says.
    pub ova: Option<PathBuf>,
    /// Told what is happening.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two looks.
    pub pace: Duration,
    /// How long the run waits for what it cannot do now, before it ends paused.
    pub pause_limit: Duration,
    /// Until when the cluster's API is taken to be away; none to begin with.
    pub away_until: Mutex<Option<Instant>>,
    /// Becomes true when the run is to end at the next moment at which it can be continued.
    pub cancelled: watch::Receiver<bool>,
}

/// Where a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At an end.
    Ended(Outcome),
    /// It could not go on for longer than it was to wait; resuming goes on.
    Paused(String),
    /// One node is back on its old image, by its place in the plan; a person decides how to go on.
    NodeIsBack(usize),
    /// It was cancelled; resuming goes on.
    Cancelled,
}

/// Why a step was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may pass by itself, or by what a person does elsewhere.
    Pause(anyhow::Error),
    /// It will not pass: the hypervisor refuses.
    Refused(anyhow::Error),
    /// The node does not work on the new image.
    Unfit(anyhow::Error),
    /// This command may not go on.
    Stop(anyhow::Error),
    /// This command was asked to end.
    Cancelled,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error.kind {
            Kind::Fenced => Self::Stop(error.source),
            Kind::Refused | Kind::Denied | Kind::NotFound => Self::Refused(error.source),
            Kind::Transient | Kind::Changed | Kind::InDoubt => Self::Pause(error.source),
        }
    }
}

/// What nodes say is no last word: whoever needs it waits.
impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        if error.is::<Lost>() { Self::Stop(error) } else { Self::Pause(error) }
    }
}

impl Run<'_> {
    /// Goes on until the way has ended, or cannot be gone on with.
    ///
    /// # Errors
    /// When the journal cannot be written or somebody else has taken over. Resuming goes on from there.
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
        let (error, final_word) = match self.take(&plan, journal, step, (index, total), again, pausing).await {
            Ok(()) => {
                *pausing = Pausing { settled: true, ..Pausing::default() };
                return Ok(None);
            }
            Err(Trouble::Stop(error)) => return Err(error),
            Err(Trouble::Cancelled) => return Ok(Some(Arrived::Cancelled)),
            Err(Trouble::Unfit(error) | Trouble::Refused(error)) => (error, true),
            Err(Trouble::Pause(error)) => (error, false),
        };
        pausing.settled = false;
        let limit = Duration::from_secs(plan.options.gate_seconds).min(self.pause_limit);
        if let Some(node) = step.node.filter(|node| progress.is_away(*node))
            && (final_word || pausing.lasts() >= limit)
        {
            self.goes_back(&plan, journal, node, &told(&format!("{error:#}"))).await?;
            *pausing = Pausing::default();
            return Ok(None);
        }
        self.pause(journal, step, &told(&format!("{error:#}")), pausing).await
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
        if !pausing.settled {
            self.hypervisor.settle().await.map_err(|error| error.context("waiting for what was begun before"))?;
            pausing.settled = true;
        }
        let disk = self.disk_to_move(plan, journal, step).await?;
        // A step that is tried again and again is noted once, before anything of it is done; again if its disk is
        // elsewhere now.
        let moved = disk.is_some() && !journal.entries().iter().any(|entry| {
            matches!(&entry.event, Event::Begun { step: begun, disk: noted } if *begun == step && *noted == disk)
        });
        if !again || moved {
            self.note(journal, Event::Begun { step, disk }).await.map_err(Trouble::Stop)?;
        }
        if pausing.since.is_none() {
            (self.watch)(&Notice::Step { plan, step, index, total, again });
        }
        let Did { note, vm, replaced } = self.act(plan, journal, step, again).await?;
        (self.watch)(&Notice::Done { note: &note });
        self.note(journal, Event::Done { step, note, vm, replaced }).await.map_err(Trouble::Stop)
    }

    /// Turns the journal another way.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn turn(
        &self,
        journal: &mut Journal<'_>,
        direction: Direction,
        only: Option<usize>,
        reason: &str,
    ) -> anyhow::Result<()> {
        let plan = journal.plan().clone();
        (self.watch)(&Notice::DirectionChanged { plan: &plan, direction, only, reason });
        self.note(journal, Event::DirectionChanged { direction, only, reason: reason.to_owned() }).await
    }

    /// Turns a node that does not work on the new image back: alone, if others are there already and nothing else
    /// was asked for.
    async fn goes_back(&self, plan: &Plan, journal: &mut Journal<'_>, node: usize, why: &str) -> anyhow::Result<()> {
        let alone = plan.options.mode == Mode::Rolling
            && plan.options.on_failure == OnFailure::Node
            && journal.progress().touches_others(node);
        let reason = format!("{}: {why}", plan.nodes[node].name);
        self.turn(journal, Direction::Back, alone.then_some(node), &reason).await
    }

    /// Waits before the next try; says where the run has arrived when it has waited for too long.
    async fn pause(
        &self,
        journal: &mut Journal<'_>,
        step: Step,
        reason: &str,
        pausing: &mut Pausing,
    ) -> anyhow::Result<Option<Arrived>> {
        if pausing.reason != reason {
            (self.watch)(&Notice::Paused { reason });
            self.note(journal, Event::Paused { step, reason: reason.to_owned() }).await?;
            reason.clone_into(&mut pausing.reason);
        }
        pausing.since.get_or_insert_with(Instant::now);
        if pausing.lasts() >= self.pause_limit {
            return Ok(Some(Arrived::Paused(reason.to_owned())));
        }
        for _ in 0..LOOKS_PER_TRY {
            match self.may_go_on().await {
                Ok(()) => tokio::time::sleep(self.pace).await,
                Err(Trouble::Cancelled) => return Ok(Some(Arrived::Cancelled)),
                Err(Trouble::Stop(error) | Trouble::Pause(error) | Trouble::Refused(error) | Trouble::Unfit(error)) => {
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Adds an entry to the journal. While that cannot be written, nothing can follow: it is tried again, for as long
    /// as the run may be paused.
    async fn note(&self, journal: &mut Journal<'_>, event: Event) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut said = false;
        while let Err(error) = journal.append(event.clone()).await {
            if error.is::<Lost>() || started.elapsed() >= self.pause_limit || *self.cancelled.borrow() {
                return Err(error);
            }
            if !said {
                (self.watch)(&Notice::Paused { reason: &format!("{error:#}") });
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

    /// Waits until `look` yields something, at most `limit`. What it says on the way is
    /// said once; an error means "not yet".
    pub(super) async fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> Result<T, Trouble> {
        let (mut spent, mut last) = (Duration::ZERO, Instant::now());
        let mut said = String::new();
        loop {
            self.may_go_on().await?;
            let seen = look().await;
            // A command that was stopped for an hour, or slept with its machine, has not looked for an hour.
            spent += last.elapsed().min(self.pace * LOOKS_WHILE_AWAY);
            last = Instant::now();
            match seen {
                Ok(found) => return Ok(found),
                Err(error) if error.is::<Lost>() => return Err(Trouble::Stop(error)),
                Err(error) if spent >= limit => {
                    return Err(Trouble::Pause(error.context(format!("waited {} s for {what}", limit.as_secs()))));
                }
                Err(error) => {
                    let now = told(&format!("{error:#}"));
                    if now != said {
                        (self.watch)(&Notice::Waiting { what, why: &now });
                        said = now;
                    }
                }
            }
            tokio::time::sleep(self.pace).await;
        }
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

/// How a run does with its next step.
#[derive(Debug, Default)]
pub struct Pausing {
    /// Since when it cannot be taken.
    since: Option<Instant>,
    /// Why not.
    reason: String,
    /// Whether nothing that was begun before is still going on.
    settled: bool,
}

impl Pausing {
    fn lasts(&self) -> Duration {
        self.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}
