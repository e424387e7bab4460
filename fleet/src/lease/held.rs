//! A lease: acquired, confirmed before each change, released.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::lease_state::{ALONE, DOUBTED, HOLDER, Judged, RELEASED, SEEN, WITHDRAWN, holder, judged, sorted};
use super::no_store::NoStore;
use super::{Held, Holder, LeaseState, Lost, Store};
use crate::cancel::unless_cancelled;
use crate::timestamp;

/// How long a confirmation is valid. A change that was not begun within this time is not begun.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How long a request may take to reach a hypervisor or a node. After that it has arrived, or never will: its sender
/// ensures that. A successor of a command that has ended waits this long.
pub const MARGIN: Duration = Duration::from_secs(20);
/// How long after a confirmation the last permitted request has arrived or failed. A successor of a command that may be
/// alive waits this long.
pub const REACH: Duration = WINDOW.saturating_add(MARGIN);
/// How often a waiting command confirms its lease and shows that it lives. On a vCenter each confirmation is a row in
/// the Recent Tasks of all users.
const INTERVAL: Duration = Duration::from_secs(20);
/// The pause after a confirmation timed out, for a command that only waits or that needs an answer: the request may
/// still be in flight. A pause costs nothing. When it ends, [`SEEN`] is more than a minute old.
const AGAIN: Duration = Duration::from_secs(60);
/// How long the first confirmation of a new lease may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many numbered directories are kept. Older ones are removed when nothing refers to them.
const KEPT: usize = 20;

/// Whether a lease may be taken from a command that has not released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Only when its process is known to have ended.
    FromTheDead,
    /// Even from one that may be at work: it changes nothing after that.
    FromAnyone,
}

/// The context of the errors of a confirmation.
const ATTEMPT: &str = "asking who may change this deployment";

/// The store did not answer within this time. If the limit is [`WINDOW`], a later answer confirms nothing. The request
/// may still be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store did not answer within {} s", .0.as_secs())]
pub(crate) struct LeaseUnconfirmed(Duration);

enum LeaseCheck {
    Ours,
    /// Another command has taken over.
    Lost,
}

/// A lease that this command holds.
pub struct Lease<'a> {
    store: &'a dyn Store,
    number: u64,
    window: Duration,
    /// The surplus numbers when the lease was acquired.
    old: Vec<u64>,
    state: Mutex<State>,
    attempt: Attempt,
}

/// Times by a clock that runs while the machine sleeps.
struct State {
    /// When the last confirmation was begun. `None` before the first.
    confirmed: Option<Duration>,
    /// When the store last failed to answer in time. `None` after an answer.
    unsaid: Option<Duration>,
    /// When others were last shown that this command lives.
    shown: Duration,
}

impl Lease<'static> {
    /// The lease of a dry run, which was not acquired. It is never confirmed, so it permits no change. Waits do not end
    /// because of it.
    pub(crate) fn unacquired() -> Self {
        Self {
            store: &NoStore,
            number: 0,
            window: WINDOW,
            old: Vec::new(),
            state: Mutex::new(State { confirmed: None, unsaid: None, shown: boot_time() }),
            attempt: Attempt::begin(),
        }
    }
}

impl<'a> Lease<'a> {
    /// Acquires the lease on a deployment to do `what`. It is taken from a command that may be alive only if `over`
    /// allows it. This waits until that command can begin nothing more. After a command that has ended without a
    /// release, it waits until the last request of that command has arrived. `say` gets messages for the user.
    ///
    /// # Errors
    /// Another command holds the lease or was faster, or the store does not answer. A directory that was created is
    /// marked as withdrawn, if the store still accepts the mark. Nothing was begun.
    pub async fn acquire(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Self> {
        Self::take_with(store, what, over, say, WINDOW, MARGIN).await
    }

    /// As [`Lease::acquire`], for a caller that may be asked to end. After that request it reads nothing more and waits
    /// no longer. Creating and writing are not dropped: a directory without a name would count as that of a live
    /// command.
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
            unless_cancelled(cancelled, judged(store)).await?.context("reading the lease of this deployment")?;
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
        // Exactly the next number: a faster command then holds it.
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

    /// Writes the holder, waits, and confirms the lease for the first time.
    async fn begin(
        &mut self,
        what: &str,
        wait: Option<(Duration, String)>,
        say: &(dyn Fn(&str) + Sync),
        cancelled: &watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        const ATTEMPT: &str = "taking the deployment";
        let (store, number) = (self.store, self.number);
        let mut named = store.holder(what, timestamp::now());
        if let Some(process) = &mut named.process {
            process.attempt = Some(self.attempt.number());
        }
        store.write(number, HOLDER, &serde_json::to_string(&named)?).await.context(ATTEMPT)?;
        if unless_cancelled(cancelled, store.read(number, DOUBTED)).await?.context(ATTEMPT)?.is_some() {
            bail!("another command tried to take the deployment at the same moment, and stopped; try again");
        }
        // While this command slept, others may have used and removed this number.
        self.old = self.all_when_highest(cancelled).await?;
        self.old.truncate(self.old.len().saturating_sub(KEPT));
        if let Some((wait, words)) = wait {
            say(&words);
            unless_cancelled(cancelled, tokio::time::sleep(wait)).await?;
        }
        store.write(number, ALONE, "").await.context(ATTEMPT)?;
        // The same check again: that file may be in the directory of a command that created the number again.
        self.all_when_highest(cancelled).await?;
        // No change depends on this answer, and no other command holds the lease now. So a store that is stuck may take
        // longer.
        unless_cancelled(cancelled, self.confirm_within(PATIENCE)).await?
    }

    /// All numbers, if this one is the highest. A number that had been used and removed before is removed again: the
    /// maker of the next number came earlier, and no lower lease counts.
    async fn all_when_highest(&self, cancelled: &watch::Receiver<bool>) -> anyhow::Result<Vec<u64>> {
        let numbers = unless_cancelled(cancelled, sorted(self.store)).await?.context("looking who was faster")?;
        match numbers.last() {
            Some(&highest) if highest != self.number => {
                let comes_again = highest > self.number + 1 && !self.store.exists(self.number + 1).await?;
                if comes_again && let Err(error) = self.store.remove(self.number).await {
                    log::debug!("removing lease {}: {error:#}", self.number);
                }
                Err(held(self.store, highest).await.into())
            }
            None => bail!("lease {} is gone, though it was just made", self.number),
            Some(_) => Ok(numbers),
        }
    }

    /// Its number. Of two commands, the one with the higher number may continue.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// The numbers of old leases, lowest first, that were too many when this one was acquired.
    pub(crate) fn old(&self) -> &[u64] {
        &self.old
    }

    /// The numbers of all leases below this one, lowest first.
    pub(crate) async fn below(&self) -> anyhow::Result<Vec<u64>> {
        Ok(sorted(self.store).await?.into_iter().filter(|number| *number < self.number).collect())
    }

    /// Removes the directory of a lease below this one. Nothing older than an acquired lease affects a decision. Remove
    /// the lowest first, so that the remaining numbers have no gaps.
    ///
    /// # Errors
    /// It cannot be removed: some of it may be gone. Then remove no directory above it.
    pub(crate) async fn remove(&self, number: u64) -> anyhow::Result<()> {
        anyhow::ensure!(number < self.number, "lease {number} is not below lease {}", self.number);
        self.store.remove(number).await.with_context(|| format!("removing lease {number}"))
    }

    /// Asks the store before each change whether this command still holds the lease. A command that takes over creates
    /// exactly the next number. That number is removed only after this one, and only after others took over and waited.
    ///
    /// So a holder whose last confirmation is old also looks for its own directory, afterwards. It looks for the file
    /// that only the holder itself writes: a command that slept may just have created the number again.
    ///
    /// # Errors
    /// [`Lost`] if another command holds the lease. Another error if the store cannot say, or not within [`WINDOW`].
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
        if show && let Err(error) = self.store.write(self.number, SEEN, &timestamp::now().to_string()).await {
            log::debug!("renewing the lease: {error:#}");
        }
        Ok(LeaseCheck::Ours)
    }

    /// The command that has taken over, if the store says so.
    async fn successor(&self) -> Option<Holder> {
        let highest = self.store.numbers().await.ok()?.into_iter().max().filter(|highest| *highest > self.number)?;
        holder(self.store, highest).await.ok().flatten()
    }

    /// As [`Lease::confirm`], for a command that only waits: it asks rarely, and only a minute after a question timed
    /// out. An unknown answer does not end the wait.
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

    /// The pause of a command that needs an answer: the rest of a minute after a question timed out, unless a later one
    /// was answered. The first question of a change waits for nothing.
    pub(crate) fn rest(&self) -> Duration {
        let unsaid = self.state().unsaid;
        unsaid.map_or(Duration::ZERO, |at| AGAIN.saturating_sub(boot_time().saturating_sub(at)))
    }

    /// Makes the last confirmation too old.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.state().confirmed = None;
    }

    /// Whether the last confirmation permits a change that begins now.
    pub fn is_fresh(&self) -> bool {
        self.confirmed_within(self.window)
    }

    fn confirmed_within(&self, time: Duration) -> bool {
        is_within(self.state().confirmed, time)
    }

    /// Releases the lease. If that fails, the next command finds that this one's process has ended, or reports what to
    /// do.
    pub async fn release(self) {
        mark(self.store, self.number, RELEASED).await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `at` is less than `time` ago.
fn is_within(at: Option<Duration>, time: Duration) -> bool {
    at.is_some_and(|at| boot_time().saturating_sub(at) < time)
}

/// Marks a numbered directory, if the store accepts it.
async fn mark(store: &dyn Store, number: u64, file: &str) {
    if let Err(error) = store.write(number, file, "").await {
        log::debug!("marking lease {number} as {file}: {error:#}");
    }
}

async fn held(store: &dyn Store, number: u64) -> Held {
    Held { number, holder: holder(store, number).await.unwrap_or_default() }
}

/// The time since boot, including the machine's sleep. So neither a changed clock nor a suspended machine makes an old
/// confirmation look fresh (clock_gettime(2), CLOCK_BOOTTIME).
fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod races_of_two;

#[cfg(test)]
mod races;
