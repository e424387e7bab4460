//! Reads, decides and acts until nothing is left to do. An interrupted run continues by reading again.

use tokio::time::Instant;

use super::goal::Goal;
use super::look::look;
use super::reason;
use super::reconcile_loop::ReconcileLoop;
use super::records::{self, PoolRecord, Records};
use super::status::WorkersStatus;
use super::wait::Wait;
use super::worker_pool::{Notice, RunOutcome, Workers};
use crate::cancel::{Cancelled, last_look, unless_cancelled};
use crate::engine::{ActionError, Reason, TO_END};
use crate::journals;
use crate::lease::{Lease, TakeOver, standing};

impl Workers<'_> {
    /// Records a goal, and runs until it is reached.
    ///
    /// # Errors
    /// If the goal is not possible now, or another command is at work or has taken over. [`crate::Cancelled`] if the run was
    /// cancelled before the goal was recorded.
    pub async fn go(&self, wish: &Goal, over: TakeOver) -> anyhow::Result<(RunOutcome, WorkersStatus)> {
        self.go_with(wish, over, &|| Ok(())).await
    }

    /// As [`Workers::go`], with data that belongs to the goal and is stored elsewhere: it is saved first, and only under the
    /// lease.
    ///
    /// # Errors
    /// As [`Workers::go`], and those of `note`: then no goal is recorded.
    pub async fn go_with(
        &self,
        wish: &Goal,
        over: TakeOver,
        note: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<(RunOutcome, WorkersStatus)> {
        // A goal is refused before any lease is taken over.
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

    /// The present status. Changes nothing. `None` if there is no pool. The record is reported even if nothing can be read.
    pub async fn status(&self) -> anyhow::Result<Option<WorkersStatus>> {
        match records::read(self.store).await? {
            Some(kept) => {
                let held_by = standing(self.store).await?.holder();
                Ok(Some(WorkersStatus { held_by, ..self.status_of(&kept).await? }))
            }
            None => Ok(None),
        }
    }

    /// The status of the workers of this record. Changes nothing.
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
            // The pause is recorded: the command need not wait for the cluster.
            let is_noted = *wish == Goal::Pause && !round.changed && (round.blind || !rounds.kept().moves());
            if is_stuck || is_noted || changed_last.elapsed() >= self.pause_limit {
                let paused = || RunOutcome::Paused(waits);
                return Ok(if round.stopped.is_empty() { paused() } else { RunOutcome::Stopped(round.stopped) });
            }
            // After a failure the store is asked again: if it hangs, no sooner than by a command that only waits.
            let rest = if round.failed { self.pace.max(rounds.rest()) } else { self.pace };
            if unless_cancelled(&self.cancelled, tokio::time::sleep(rest)).await.is_err() {
                return Ok(RunOutcome::Cancelled);
            }
        }
    }
}
