//! Looks, decides and acts until nothing is left to do. Whoever is interrupted goes on by looking again.

use tokio::time::Instant;

use super::action_error::{ActionError, TO_END};
use super::goal::Goal;
use super::look::look;
use super::reason;
use super::reconcile_loop::ReconcileLoop;
use super::records::{self, PoolRecord, Records};
use super::status::WorkersStatus;
use super::wait::Wait;
use super::worker_pool::{Notice, RunOutcome, Workers};
use crate::cancel::{Cancelled, last_look, unless_cancelled};
use crate::journals;
use crate::lease::{Lease, TakeOver, standing};
use crate::upgrade::Reason;

impl Workers<'_> {
    /// Notes a wish, and goes on until everything is as it is wanted.
    ///
    /// # Errors
    /// When it cannot be wanted now, somebody else is at work, or has taken over; and [`crate::Cancelled`] when it was asked to end
    /// before the wish was noted.
    pub async fn go(&self, wish: &Goal, over: TakeOver) -> anyhow::Result<(RunOutcome, WorkersStatus)> {
        self.go_with(wish, over, &|| Ok(())).await
    }

    /// The same with something that goes with the wish and is kept elsewhere: it is noted first, and only by who may.
    ///
    /// # Errors
    /// As [`Workers::go`], and what `note` says: nothing is wanted otherwise then.
    pub async fn go_with(
        &self,
        wish: &Goal,
        over: TakeOver,
        note: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<(RunOutcome, WorkersStatus)> {
        // What is refused is refused before anything is taken from anyone.
        let kept = unless_cancelled(&self.cancelled, records::read(self.store)).await??;
        wish.applied(kept, (self.clock)())?;
        let say = |words: &str| (self.watch)(&Notice::TakingOver(words));
        let hold = Lease::take_unless(self.store, self.what, over, &say, &self.cancelled).await?;
        journals::prune_beside_upgrades(&hold, &self.cancelled).await;
        let gone = async {
            let kept = unless_cancelled(&self.cancelled, records::read(self.store)).await??;
            let kept = wish.applied(kept, (self.clock)())?;
            hold.confirm().await?;
            note()?;
            let mut rounds = ReconcileLoop::new(self, &hold, Records::begin(&hold, kept).await?);
            let arrived = self.run(wish, &mut rounds).await?;
            let status = match last_look(&self.cancelled, self.status_of(rounds.kept())).await {
                Ok(status) => status?,
                Err(Cancelled) => WorkersStatus::of(rounds.kept(), Err(Reason::new(reason::API, TO_END))),
            };
            anyhow::Ok((arrived, status))
        }
        .await;
        hold.release().await;
        gone
    }

    /// Where they stand; changes nothing. None if there is no pool. What is kept is told also while nothing can be looked
    /// at.
    pub async fn status(&self) -> anyhow::Result<Option<WorkersStatus>> {
        match records::read(self.store).await? {
            Some(kept) => {
                let held_by = standing(self.store).await?.holder();
                Ok(Some(WorkersStatus { held_by, ..self.status_of(&kept).await? }))
            }
            None => Ok(None),
        }
    }

    /// Where the workers stand of which this is kept; changes nothing.
    ///
    /// # Errors
    /// When this command may not go on.
    pub async fn status_of(&self, kept: &PoolRecord) -> anyhow::Result<WorkersStatus> {
        match look(self, kept).await {
            Ok(seen) => Ok(WorkersStatus::of(kept, Ok(&seen))),
            Err(ActionError::Stop(error)) => Err(error),
            Err(ActionError::Later(why) | ActionError::InDoubt(why) | ActionError::Refused(why)) => {
                Ok(WorkersStatus::of(kept, Err(why)))
            }
        }
    }

    async fn run(&self, wish: &Goal, rounds: &mut ReconcileLoop<'_>) -> anyhow::Result<RunOutcome> {
        let mut told: Vec<Wait> = Vec::new();
        let mut changed_last = Instant::now();
        loop {
            if *self.cancelled.borrow() {
                return Ok(RunOutcome::Cancelled);
            }
            let round = rounds.step().await?;
            let waits: Vec<Wait> = round.waits.iter().chain(&round.stopped).cloned().collect();
            for wait in waits.iter().filter(|wait| !told.contains(wait)) {
                (self.watch)(&Notice::Waits(wait));
            }
            told.clone_from(&waits);
            if round.progressed {
                changed_last = Instant::now();
            }
            if round.changed && !round.failed {
                continue;
            }
            if round.done {
                return Ok(RunOutcome::Done);
            }
            let is_stuck = round.needs_a_person && !round.changed;
            // A pause is noted by now: nobody has to wait for the cluster to learn that.
            let is_noted = *wish == Goal::Pause && !round.changed && (round.blind || !rounds.kept().moves());
            if is_stuck || is_noted || changed_last.elapsed() >= self.pause_limit {
                let paused = || RunOutcome::Paused(waits);
                return Ok(if round.stopped.is_empty() { paused() } else { RunOutcome::Stopped(round.stopped) });
            }
            // What could not be done asks the store again: where that hangs, no sooner than who only waits.
            let rest = if round.failed { self.pace.max(rounds.rest()) } else { self.pace };
            if unless_cancelled(&self.cancelled, tokio::time::sleep(rest)).await.is_err() {
                return Ok(RunOutcome::Cancelled);
            }
        }
    }
}
