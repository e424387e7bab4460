//! A hold: taken, confirmed before each change, given back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};

use super::standing::{ALONE, HOLDER, RELEASED, SEEN, holder, judged, sorted};
use super::{Held, Holder, Lost, Standing, Store};

/// For how long a confirmation is good. A change that was not begun by then is not begun.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How much longer than [`WINDOW`] a successor waits: a request may take as long to reach a hypervisor or a node.
const MARGIN: Duration = Duration::from_secs(20);
/// So often a command that only waits looks whether it still holds the deployment, and lets others see that it lives.
const INTERVAL: Duration = Duration::from_secs(5);

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

/// A deployment that this command holds.
pub struct Hold<'a> {
    store: &'a dyn Store,
    number: u64,
    window: Duration,
    /// The numbers that were too many when it was taken.
    old: Vec<u64>,
    state: Mutex<State>,
}

/// By a clock that runs while the machine sleeps.
struct State {
    /// When the last confirmation was begun; none before the first.
    confirmed: Option<Duration>,
    /// When others were last shown that this command lives.
    shown: Duration,
}

impl<'a> Hold<'a> {
    /// Takes a deployment to do `what`. From a command that may be alive it is taken only if `over` says so, and
    /// then comes the wait until that one can begin nothing more; `say` is told.
    ///
    /// # Errors
    /// Somebody holds it, was faster, or the store does not answer.
    pub async fn take(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Self> {
        Self::take_with(store, what, over, say, WINDOW, MARGIN).await
    }

    /// The same with other times, for tests.
    pub(crate) async fn take_with(
        store: &'a dyn Store,
        what: &str,
        over: TakeOver,
        say: &(dyn Fn(&str) + Sync),
        window: Duration,
        margin: Duration,
    ) -> anyhow::Result<Self> {
        let (before, standing) = judged(store).await.context("looking who is at work on this deployment")?;
        let alive = match standing {
            Standing::Free => None,
            Standing::Held(held) if over == TakeOver::FromTheDead => return Err(held.into()),
            Standing::Held(held) => Some(held),
        };
        // Exactly the next one: whoever was faster holds it.
        let number = before + 1;
        if !store.make(number).await.context("taking the deployment")? {
            return Err(Held { number, holder: holder(store, number).await.unwrap_or_default() }.into());
        }
        let named = serde_json::to_string(&Holder::this(what, unix()))?;
        if let Err(error) = store.write(number, HOLDER, &named).await {
            // Nothing was begun: if it was nobody's before, it is nobody's again.
            if alive.is_none() {
                give_back(store, number).await;
            }
            return Err(error.context("taking the deployment"));
        }
        // While this command slept others may have come so far that the number was used and removed.
        let numbers = sorted(store).await.context("looking who was faster")?;
        match numbers.last() {
            Some(&highest) if highest != number => {
                return Err(Held { number: highest, holder: holder(store, highest).await.unwrap_or_default() }.into());
            }
            None => bail!("hold {number} is gone, though it was just made"),
            Some(_) => {}
        }
        if let Some(held) = alive {
            let wait = window + margin;
            say(&format!("taking over from {}: {} s until it can begin nothing more", held.who(), wait.as_secs()));
            tokio::time::sleep(wait).await;
        }
        store.write(number, ALONE, "").await?;
        let old = numbers[..numbers.len().saturating_sub(KEPT)].to_vec();
        let state = Mutex::new(State { confirmed: None, shown: boot_time() });
        let hold = Self { store, number, window, old, state };
        hold.confirm().await?;
        Ok(hold)
    }

    /// Its number: of two commands the one with the higher number may go on.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it is kept.
    pub fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// Removes directories of old holds, the lowest first, so that those that are left have no gaps: up to `needed`,
    /// from which on others still read. Of what cannot be removed the next command tries again.
    ///
    /// Only for who has taken the deployment: no judgement goes by what was before that one.
    pub async fn prune(&self, needed: Option<u64>) {
        for &number in self.old.iter().take_while(|number| needed.is_none_or(|needed| **number < needed)) {
            if let Err(error) = self.store.remove(number).await {
                log::debug!("removing hold {number}: {error:#}");
                return;
            }
        }
    }

    /// Whether there are old holds to remove.
    pub fn has_old(&self) -> bool {
        !self.old.is_empty()
    }

    /// Asks whether this command still holds the deployment: before each change. Whoever takes over makes exactly the
    /// next number. That one is removed only after this one, and after others took over and waited: so who has not
    /// asked for long asks for his own as well, afterwards.
    ///
    /// # Errors
    /// [`Lost`] when another one does; another error when nobody can say now.
    pub async fn confirm(&self) -> anyhow::Result<()> {
        const ATTEMPT: &str = "asking who may change this deployment";
        let asked = boot_time();
        let mut lost = self.store.exists(self.number + 1).await.context(ATTEMPT)?;
        if !lost && !self.is_fresh() {
            lost = !self.store.exists(self.number).await.context(ATTEMPT)?;
        }
        if lost {
            return Err(Lost(self.successor().await).into());
        }
        let show = {
            let mut state = self.state();
            state.confirmed = Some(asked);
            let due = asked.saturating_sub(state.shown) >= INTERVAL;
            if due {
                state.shown = asked;
            }
            due
        };
        if show && let Err(error) = self.store.write(self.number, SEEN, &unix().to_string()).await {
            log::debug!("showing that this command lives: {error:#}");
        }
        Ok(())
    }

    /// Who has taken over, if that can be told.
    async fn successor(&self) -> Option<Holder> {
        let highest = self.store.numbers().await.ok()?.into_iter().max().filter(|highest| *highest > self.number)?;
        holder(self.store, highest).await.ok().flatten()
    }

    /// The same for a command that only waits: it asks now and then, and an unknown answer ends no wait.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn still(&self) -> Result<(), Lost> {
        if self.confirmed_within(INTERVAL) {
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

    /// Whether the last confirmation is good for a change that is begun now.
    pub fn is_fresh(&self) -> bool {
        self.confirmed_within(self.window)
    }

    fn confirmed_within(&self, time: Duration) -> bool {
        self.state().confirmed.is_some_and(|confirmed| boot_time().saturating_sub(confirmed) < time)
    }

    /// Gives the deployment back. If that fails, the next command finds this one's process ended, or says what to do.
    pub async fn release(self) {
        give_back(self.store, self.number).await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn give_back(store: &dyn Store, number: u64) {
    if let Err(error) = store.write(number, RELEASED, "").await {
        log::debug!("giving the deployment back: {error:#}");
    }
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
#[path = "races.rs"]
mod races;
