//! A hold: taken, confirmed before each change, given back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::lease_state::{ALONE, DOUBTED, HOLDER, Judged, RELEASED, SEEN, WITHDRAWN, holder, judged, sorted};
use super::{Held, Holder, LeaseState, Lost, Store};
use crate::cancel::unless_cancelled;

/// For how long a confirmation is good. A change that was not begun by then is not begun.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How long a request that was begun may take to reach a hypervisor or a node: it has arrived by then, or never will.
/// Whoever makes requests sees to that. A successor of a command that has ended waits that long.
pub const MARGIN: Duration = Duration::from_secs(20);
/// How long after a confirmation the last request that it permits has arrived or failed: so long waits the successor of a
/// command that may be alive.
pub const REACH: Duration = WINDOW.saturating_add(MARGIN);
/// How often a waiting command confirms its lease and shows that it lives. On a vCenter each confirmation is a row in everybody's Recent Tasks.
const INTERVAL: Duration = Duration::from_secs(20);
/// After nobody could say in time, a command that only waits asks no sooner again, nor does one that cannot go on without an answer: what
/// was asked may still be under way, and it loses nothing by it. When it was last seen to live ([`SEEN`]) is more than a minute ago then.
const AGAIN: Duration = Duration::from_secs(60);
/// How long who has just taken a deployment waits to be told that it is his.
const PATIENCE: Duration = Duration::from_secs(60);

/// So many numbered directories are kept; what is older goes once nobody goes by it.
const KEPT: usize = 20;

/// Whether a deployment may be taken from a command that has not given it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Only when its process is known to have ended.
    FromTheDead,
    /// Also when it may still be at work: it does nothing more then.
    FromAnyone,
}

/// What is asked before each change.
const ATTEMPT: &str = "asking who may change this deployment";

/// Nobody has said within this time whether a deployment is still held. Where that is [`WINDOW`], an answer that comes later says
/// nothing. What was asked may still be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody can say within {} s", .0.as_secs())]
pub(crate) struct LeaseUnconfirmed(Duration);

enum LeaseCheck {
    Ours,
    /// Another command has taken over.
    Lost,
}

/// A deployment that this command holds.
pub struct Lease<'a> {
    store: &'a dyn Store,
    number: u64,
    window: Duration,
    /// The numbers that were too many when it was taken.
    old: Vec<u64>,
    state: Mutex<State>,
    attempt: Attempt,
}

/// By a clock that runs while the machine sleeps.
struct State {
    /// When the last confirmation was begun; none before the first.
    confirmed: Option<Duration>,
    /// When nobody could say in time, unless somebody could since.
    unsaid: Option<Duration>,
    /// When others were last shown that this command lives.
    shown: Duration,
}

impl<'a> Lease<'a> {
    /// Takes a deployment to do `what`. From a command that may be alive it is taken only if `over` says so, and
    /// then comes the wait until that one can begin nothing more; after one that has ended without giving it back, the
    /// wait until its last request has arrived. `say` is told.
    ///
    /// # Errors
    /// Somebody holds it, was faster, or the store does not answer. What was made by then is marked as withdrawn, if the
    /// store still takes that: nothing was begun.
    pub async fn acquire(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Self> {
        Self::take_with(store, what, over, say, WINDOW, MARGIN).await
    }

    /// The same, for who may be asked to end meanwhile: nothing is looked at or waited for any more then. What makes and writes is
    /// not dropped: a directory without a name would count as somebody's who is alive.
    pub(crate) async fn take_unless(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
        cancelled: &watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        Self::taken(store, what, over, say, (WINDOW, MARGIN), cancelled).await
    }

    /// As [`Lease::acquire`] with other times, for tests.
    pub(crate) async fn take_with(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
        window: Duration,
        margin: Duration,
    ) -> anyhow::Result<Self> {
        let nobody_asks = watch::channel(false).1;
        Self::taken(store, what, over, say, (window, margin), &nobody_asks).await
    }

    async fn taken(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
        (window, margin): (Duration, Duration),
        cancelled: &watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let Judged { next: number, standing, ended } =
            unless_cancelled(cancelled, judged(store)).await?.context("looking who is at work on this deployment")?;
        let wait = match (standing, ended) {
            (LeaseState::Held(held), _) if over == TakeOver::FromTheDead => return Err(held.into()),
            (LeaseState::Held(held), _) => {
                let wait = window + margin;
                let words = format!("{} s until it can begin nothing more", wait.as_secs());
                Some((wait, format!("taking over from {}: {words}", held.who())))
            }
            (LeaseState::Free, Some(dead)) => {
                let words = format!("{} s until its last request has arrived or failed", margin.as_secs());
                Some((margin, format!("{dead} has ended without giving the deployment back: {words}")))
            }
            (LeaseState::Free, None) => None,
        };
        // Exactly the next one: whoever was faster holds it.
        let attempt = Attempt::begin();
        match store.make(number).await {
            Ok(true) => {}
            Ok(false) => return Err(held(store, number).await.into()),
            Err(error) => {
                mark(store, number, DOUBTED).await;
                return Err(error.context("taking the deployment"));
            }
        }
        let mut hold = Self {
            store,
            number,
            window,
            old: Vec::new(),
            state: Mutex::new(State { confirmed: None, unsaid: None, shown: boot_time() }),
            attempt,
        };
        match hold.begin(what, wait, say, cancelled).await {
            Ok(()) => Ok(hold),
            Err(error) => {
                mark(store, number, WITHDRAWN).await;
                Err(error)
            }
        }
    }

    /// Says whose it is, waits, and confirms it for the first time.
    async fn begin(
        &mut self,
        what: &str,
        wait: Option<(Duration, String)>,
        say: &(dyn Fn(&str) + Sync),
        cancelled: &watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        const ATTEMPT: &str = "taking the deployment";
        let (store, number) = (self.store, self.number);
        let mut named = store.holder(what, unix());
        if let Some(process) = &mut named.process {
            process.attempt = Some(self.attempt.number());
        }
        store.write(number, HOLDER, &serde_json::to_string(&named)?).await.context(ATTEMPT)?;
        if unless_cancelled(cancelled, store.read(number, DOUBTED)).await?.context(ATTEMPT)?.is_some() {
            bail!("another command tried to take the deployment at the same moment, and has given up; try again");
        }
        // While this command slept others may have come so far that the number was used and removed.
        self.old = self.all_when_highest(cancelled).await?;
        self.old.truncate(self.old.len().saturating_sub(KEPT));
        if let Some((wait, words)) = wait {
            say(&words);
            unless_cancelled(cancelled, tokio::time::sleep(wait)).await?;
        }
        store.write(number, ALONE, "").await.context(ATTEMPT)?;
        // The same again: that file may be in the directory of somebody who has made the number anew.
        self.all_when_highest(cancelled).await?;
        // Nothing is changed by this answer, and by now nobody else has it: a store that stands still for a while is waited for.
        unless_cancelled(cancelled, self.confirm_within(PATIENCE)).await?
    }

    /// All numbers, of which this one is the highest. One that had been used and removed before is removed again: who
    /// made the next one was there before, and no hold below it counts.
    async fn all_when_highest(&self, cancelled: &watch::Receiver<bool>) -> anyhow::Result<Vec<u64>> {
        let numbers = unless_cancelled(cancelled, sorted(self.store)).await?.context("looking who was faster")?;
        match numbers.last() {
            Some(&highest) if highest != self.number => {
                let comes_again = highest > self.number + 1 && !self.store.exists(self.number + 1).await?;
                if comes_again && let Err(error) = self.store.remove(self.number).await {
                    log::debug!("removing hold {}: {error:#}", self.number);
                }
                Err(held(self.store, highest).await.into())
            }
            None => bail!("hold {} is gone, though it was just made", self.number),
            Some(_) => Ok(numbers),
        }
    }

    /// Its number: of two commands the one with the higher number may go on.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// The numbers of old holds, the lowest first, of which there were too many when this one was taken.
    pub(crate) fn old(&self) -> &[u64] {
        &self.old
    }

    /// The numbers of all holds below this one, the lowest first.
    pub(crate) async fn below(&self) -> anyhow::Result<Vec<u64>> {
        Ok(sorted(self.store).await?.into_iter().filter(|number| *number < self.number).collect())
    }

    /// Removes the directory of a hold below this one. No judgement goes by what was before one that was taken; removed are the
    /// lowest first, so that those that are left have no gaps.
    ///
    /// # Errors
    /// When it cannot be removed: some of it may be gone. None above it may be removed then.
    pub(crate) async fn remove(&self, number: u64) -> anyhow::Result<()> {
        anyhow::ensure!(number < self.number, "hold {number} is not below hold {}", self.number);
        self.store.remove(number).await.with_context(|| format!("removing hold {number}"))
    }

    /// Asks whether this command still holds the deployment: before each change. Whoever takes over makes exactly the
    /// next number. That one is removed only after this one, and after others took over and waited: so who has not
    /// asked for long asks for his own as well, afterwards. He looks for what only he has written there: somebody who
    /// slept may just have made the number anew.
    ///
    /// # Errors
    /// [`Lost`] when another one does; another error when nobody can say now, or not within the time for which an answer is good.
    pub async fn confirm(&self) -> anyhow::Result<()> {
        self.confirm_within(WINDOW).await
    }

    async fn confirm_within(&self, limit: Duration) -> anyhow::Result<()> {
        match timeout(limit, self.ask()).await {
            Ok(Ok(LeaseCheck::Ours)) => Ok(()),
            Ok(Ok(LeaseCheck::Lost)) => {
                let successor = timeout(WINDOW, self.successor()).await;
                Err(Lost(successor.ok().flatten()).into())
            }
            Ok(Err(error)) => Err(error.context(ATTEMPT)),
            Err(_) => {
                self.state().unsaid = Some(boot_time());
                Err(anyhow::Error::new(LeaseUnconfirmed(limit)).context(ATTEMPT))
            }
        }
    }

    async fn ask(&self) -> anyhow::Result<LeaseCheck> {
        let asked = boot_time();
        let mut lost = self.store.exists(self.number + 1).await?;
        if !lost && !self.is_fresh() {
            lost = self.store.read(self.number, ALONE).await?.is_none();
        }
        if lost {
            return Ok(LeaseCheck::Lost);
        }
        let show = {
            let mut state = self.state();
            state.confirmed = Some(asked);
            state.unsaid = None;
            let due = asked.saturating_sub(state.shown) >= INTERVAL;
            if due {
                state.shown = asked;
            }
            due
        };
        if show && let Err(error) = self.store.write(self.number, SEEN, &unix().to_string()).await {
            log::debug!("showing that this command lives: {error:#}");
        }
        Ok(LeaseCheck::Ours)
    }

    /// Who has taken over, if that can be told.
    async fn successor(&self) -> Option<Holder> {
        let highest = self.store.numbers().await.ok()?.into_iter().max().filter(|highest| *highest > self.number)?;
        holder(self.store, highest).await.ok().flatten()
    }

    /// The same for a command that only waits: it asks now and then, after a question that nobody could answer in time only a minute later,
    /// and an unknown answer ends no wait.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn renew(&self) -> Result<(), Lost> {
        let is_unsaid = is_within(self.state().unsaid, AGAIN);
        if is_unsaid || self.confirmed_within(INTERVAL) {
            return Ok(());
        }
        match self.confirm().await.map_err(|error| error.downcast::<Lost>()) {
            Err(Ok(lost)) => Err(lost),
            Err(Err(error)) => {
                log::debug!("{error:#}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// For how long whoever cannot go on without an answer leaves the store alone: after a question that nobody could answer in time the
    /// rest of a minute, unless somebody could since. The first question of a change waits for nothing.
    pub(crate) fn rest(&self) -> Duration {
        let unsaid = self.state().unsaid;
        unsaid.map_or(Duration::ZERO, |at| AGAIN.saturating_sub(boot_time().saturating_sub(at)))
    }

    /// Nobody has confirmed it for long.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.state().confirmed = None;
    }

    /// Whether the last confirmation is good for a change that is begun now.
    pub fn is_fresh(&self) -> bool {
        self.confirmed_within(self.window)
    }

    fn confirmed_within(&self, time: Duration) -> bool {
        is_within(self.state().confirmed, time)
    }

    /// Gives the deployment back. If that fails, the next command finds this one's process ended, or says what to do.
    pub async fn release(self) {
        mark(self.store, self.number, RELEASED).await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something was so short a time ago.
fn is_within(at: Option<Duration>, time: Duration) -> bool {
    at.is_some_and(|at| boot_time().saturating_sub(at) < time)
}

/// Marks a numbered directory, if the store takes it.
async fn mark(store: &dyn Store, number: u64, file: &str) {
    if let Err(error) = store.write(number, file, "").await {
        log::debug!("marking hold {number} as {file}: {error:#}");
    }
}

async fn held(store: &dyn Store, number: u64) -> Held {
    Held { number, holder: holder(store, number).await.unwrap_or_default() }
}

/// Time since the boot, the machine's sleep included: neither a change of the clock nor a suspended machine makes an
/// old confirmation look fresh (clock_gettime(2), CLOCK_BOOTTIME).
fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "races_of_two.rs"]
mod races_of_two;

#[cfg(test)]
#[path = "races.rs"]
mod races;
