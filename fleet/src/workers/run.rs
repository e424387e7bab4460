//! Looks, decides and acts until nothing is left to do. Whoever is interrupted goes on by looking again.

use tokio::time::Instant;

use super::act::{Acted, Acting};
use super::action::Action;
use super::crew::{Arrived, Notice, Workers};
use super::decide::{Next, next};
use super::guarded_cluster::GuardedCluster;
use super::look::look;
use super::machine::{Machine, State};
use super::records::{self, Kept, Records};
use super::seen::Seen;
use super::status::WorkersStatus;
use super::trouble::Trouble;
use super::wait::Wait;
use super::wish::Wish;
use crate::authority::{Hold, TakeOver};
use crate::upgrade::{GuardedHypervisor, Reason};

/// How long a round may make VMs, in seconds, before those that are made are powered on. One at least is made.
const MAKING: u64 = 60;

impl Workers<'_> {
    /// Notes a wish, and goes on until everything is as it is wanted.
    ///
    /// # Errors
    /// When it cannot be wanted now, somebody else is at work, or has taken over.
    pub async fn go(&self, wish: &Wish, over: TakeOver) -> anyhow::Result<(Arrived, WorkersStatus)> {
        // What is refused is refused before anything is taken from anyone.
        wish.applied(records::read(self.store).await?, (self.clock)())?;
        let say = |words: &str| (self.watch)(&Notice::TakingOver(words));
        let hold = Hold::take(self.store, self.what, over, &say).await?;
        records::prune(&hold).await;
        let gone = async {
            let kept = wish.applied(records::read(self.store).await?, (self.clock)())?;
            let mut records = Records::begin(&hold, kept).await?;
            let arrived = self.run(wish, &hold, &mut records).await?;
            let status = self.status_of(records.kept()).await?;
            anyhow::Ok((arrived, status))
        }
        .await;
        hold.release().await;
        gone
    }

    /// Where they stand; changes nothing. None if there is no pool. What is kept is told also while nothing can be looked
    /// at.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn status(&self) -> anyhow::Result<Option<WorkersStatus>> {
        match records::read(self.store).await? {
            Some(kept) => Ok(Some(self.status_of(&kept).await?)),
            None => Ok(None),
        }
    }

    async fn status_of(&self, kept: &Kept) -> anyhow::Result<WorkersStatus> {
        match look(self.hypervisor, self.cluster, kept, (self.clock)()).await {
            Ok(seen) => Ok(WorkersStatus::of(kept, Ok(&seen))),
            Err(Trouble::Stop(error)) => Err(error),
            Err(Trouble::Later(why) | Trouble::InDoubt(why) | Trouble::Refused(why)) => {
                Ok(WorkersStatus::of(kept, Err(why)))
            }
        }
    }

    async fn run(&self, wish: &Wish, hold: &Hold<'_>, records: &mut Records<'_>) -> anyhow::Result<Arrived> {
        let acting = Acting {
            workers: self,
            hypervisor: GuardedHypervisor::new(self.hypervisor, hold),
            cluster: GuardedCluster { cluster: self.cluster, hold },
        };
        let mut told: Vec<Wait> = Vec::new();
        // What a command before this one had begun has arrived, and is waited for.
        let mut in_doubt = true;
        let mut changed_last = Instant::now();
        loop {
            hold.still().await?;
            if *self.cancelled.borrow() {
                return Ok(Arrived::Cancelled);
            }
            let round = self.round(&acting, records, &mut in_doubt).await?;
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
            if round.is_done {
                return Ok(Arrived::Done);
            }
            let is_stuck = round.needs_a_person && !round.changed && !round.failed;
            // A pause is noted by now: nobody has to wait for the cluster to learn that.
            let is_noted = *wish == Wish::Pause && !round.changed && (round.blind || !records.kept().moves());
            if is_stuck || is_noted || changed_last.elapsed() >= self.pause_limit {
                let paused = || Arrived::Paused(waits);
                return Ok(if round.stopped.is_empty() { paused() } else { Arrived::Stopped(round.stopped) });
            }
            tokio::time::sleep(self.pace).await;
        }
    }

    /// Looks once, and does all that can be done then.
    async fn round(
        &self,
        acting: &Acting<'_>,
        records: &mut Records<'_>,
        in_doubt: &mut bool,
    ) -> anyhow::Result<Round> {
        let mut round = Round::default();
        let seen = match self.looked(acting, records.kept(), in_doubt).await {
            Ok(seen) => seen,
            Err(trouble) => {
                round.blind = true;
                round.meets(None, trouble, in_doubt)?;
                return Ok(round);
            }
        };
        let Next { actions, waits, stopped } = {
            let next = next(&records.kept().pool, &records.kept().machines, &seen);
            (round.is_done, round.needs_a_person) = (next.is_done(), next.needs_a_person());
            next
        };
        (round.waits, round.stopped) = (waits, stopped);
        let mut imported = false;
        for action in actions {
            if *self.cancelled.borrow() {
                break;
            }
            // The token of a VM that is made should not run out while all others are made as well.
            let makes = matches!(action, Action::Import(_));
            if makes && imported && (self.clock)().saturating_sub(seen.now) >= MAKING {
                continue;
            }
            imported |= makes;
            if !matches!(action, Action::Drain(_)) {
                (self.watch)(&Notice::Begun(&action));
            }
            let leads_on = leads_on(&action, action.machine().and_then(|name| records.kept().machine(name)));
            match acting.act(records, &seen, &action).await {
                Ok(Acted::Changed) => {
                    round.changed = true;
                    round.progressed |= leads_on;
                }
                Ok(Acted::Blocked(why)) => round.blocked(&action, why),
                Err(trouble) => round.meets(action.machine(), trouble, in_doubt)?,
            }
        }
        Ok(round)
    }

    async fn looked(&self, acting: &Acting<'_>, kept: &Kept, in_doubt: &mut bool) -> Result<Seen, Trouble> {
        if *in_doubt {
            acting.hypervisor.settle().await?;
            *in_doubt = false;
        }
        look(self.hypervisor, self.cluster, kept, (self.clock)()).await
    }
}

/// Whether something leads on, once it is done: what is made anew again and again comes no further by being removed.
fn leads_on(action: &Action, machine: Option<&Machine>) -> bool {
    let is_new = machine.is_some_and(|machine| machine.state == State::New);
    match action {
        Action::RemoveToken(_) | Action::PowerOff(_) | Action::Detach(..) | Action::Destroy(_) => !is_new,
        _ => true,
    }
}

/// What one look has led to.
#[derive(Default)]
struct Round {
    /// Something was done.
    changed: bool,
    /// Something was done that leads on.
    progressed: bool,
    /// Something could not be done.
    failed: bool,
    /// Nothing could be looked at.
    blind: bool,
    is_done: bool,
    needs_a_person: bool,
    waits: Vec<Wait>,
    stopped: Vec<Wait>,
}

impl Round {
    /// A drain that is blocked says by whom, and lasts as the drain does.
    fn blocked(&mut self, action: &Action, reason: Reason) {
        for wait in self.waits.iter_mut().filter(|wait| wait.worker.as_ref() == action.machine()) {
            wait.reason = reason.clone();
        }
    }

    /// What was not done is done later, or never by this command.
    fn meets(&mut self, machine: Option<&String>, trouble: Trouble, in_doubt: &mut bool) -> anyhow::Result<()> {
        let reason = match trouble {
            Trouble::Stop(error) => return Err(error),
            Trouble::Later(reason) | Trouble::Refused(reason) => reason,
            Trouble::InDoubt(reason) => {
                *in_doubt = true;
                reason
            }
        };
        self.failed = true;
        self.waits.push(Wait { worker: machine.cloned(), reason, lasting: false });
        Ok(())
    }
}
