//! A hold: taken, confirmed before each change, given back.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};

use super::{Holder, Store};

/// For how long a confirmation is good. A change that was not begun by then is not begun.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How much longer than [`WINDOW`] a successor waits: a request may take as long to reach a hypervisor or a node.
const MARGIN: Duration = Duration::from_secs(20);
/// So often a command that only waits looks whether it still holds the deployment, and lets others see that it lives.
const INTERVAL: Duration = Duration::from_secs(5);

const HOLDER: &str = "holder.json";
const RELEASED: &str = "released";
/// There once whoever was taken over from can have begun nothing more.
const ALONE: &str = "alone";

/// Whether a deployment may be taken from a command that has not given it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Only when its process is known to have ended.
    FromTheDead,
    /// Also when it may still be at work: it does nothing more then.
    FromAnyone,
}

/// Who holds a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody.
    Free,
    /// A command that has not given it back, and is not known to have ended. None while it has not said its name.
    Held(Option<Holder>),
}

impl Standing {
    /// Who is at work, for people; none if nobody is.
    pub fn holder(self) -> Option<String> {
        match self {
            Self::Free => None,
            Self::Held(holder) => {
                Some(holder.map_or_else(|| "another command".to_owned(), |holder| holder.to_string()))
            }
        }
    }
}

/// The deployment is another command's now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Lost(Option<Holder>);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(holder) => write!(f, "{holder} has taken over; nothing more is done here"),
            None => write!(f, "another command has taken over; nothing more is done here"),
        }
    }
}

/// The deployment is held by another command, which may be alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Held(Option<Holder>);

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(holder) => write!(f, "{holder} is at work on this deployment"),
            None => write!(f, "a command that has just begun is at work on this deployment"),
        }
    }
}

/// A deployment that this command holds.
pub struct Hold<'a> {
    store: &'a dyn Store,
    number: u64,
    window: Duration,
    state: Mutex<State>,
}

struct State {
    holder: Holder,
    /// When the last confirmation was begun, by a clock that runs while the machine sleeps.
    confirmed: Duration,
    /// When others were last shown that this command lives.
    shown: Duration,
}

/// Who holds the deployment.
///
/// # Errors
/// When the store cannot be read.
pub async fn standing(store: &dyn Store) -> anyhow::Result<Standing> {
    Ok(judged(store).await?.1)
}

/// The highest number, and who holds the deployment. A command that ended while it waited to take over says nothing of
/// the one before it: that one may be alive.
async fn judged(store: &dyn Store) -> anyhow::Result<(u64, Standing)> {
    let mut numbers = store.numbers().await?;
    numbers.sort_unstable();
    let highest = numbers.last().copied().unwrap_or_default();
    for number in numbers.into_iter().rev() {
        if store.read(number, RELEASED).await?.is_some() {
            break;
        }
        match holder(store, number).await? {
            Some(dead) if dead.is_dead() => {
                if store.read(number, ALONE).await?.is_some() {
                    break;
                }
            }
            holder => return Ok((highest, Standing::Held(holder))),
        }
    }
    Ok((highest, Standing::Free))
}

async fn holder(store: &dyn Store, number: u64) -> anyhow::Result<Option<Holder>> {
    let text = store.read(number, HOLDER).await?;
    text.map(|text| serde_json::from_str(&text).with_context(|| format!("reading who holder {number} is"))).transpose()
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
            Standing::Held(holder) if over == TakeOver::FromTheDead => {
                return Err(Held(holder).into());
            }
            Standing::Held(holder) => Some(holder),
        };
        // Exactly the next one: whoever was faster holds it.
        let number = before + 1;
        if !store.make(number).await.context("taking the deployment")? {
            return Err(Held(holder(store, number).await.unwrap_or_default()).into());
        }
        let holder = Holder::this(what, unix());
        store.write(number, HOLDER, &serde_json::to_string(&holder)?).await?;
        if let Some(before) = alive {
            let before = before.map_or_else(|| "the command before".to_owned(), |holder| holder.to_string());
            say(&format!(
                "taking over from {before}: {} s until it can begin nothing more",
                (window + margin).as_secs()
            ));
            tokio::time::sleep(window + margin).await;
        }
        store.write(number, ALONE, "").await?;
        let now = boot_time();
        let hold = Self { store, number, window, state: Mutex::new(State { holder, confirmed: now, shown: now }) };
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

    /// Asks whether this command still holds the deployment: before each change.
    ///
    /// # Errors
    /// [`Lost`] when another one does; another error when nobody can say now.
    pub async fn confirm(&self) -> anyhow::Result<()> {
        let asked = boot_time();
        let highest = self.store.numbers().await.context("asking who may change this deployment")?.into_iter().max();
        if highest != Some(self.number) {
            let other = match highest {
                Some(number) => holder(self.store, number).await.unwrap_or_default(),
                None => None,
            };
            return Err(Lost(other).into());
        }
        let show = {
            let mut state = self.state();
            state.confirmed = asked;
            let due = asked.saturating_sub(state.shown) >= INTERVAL;
            due.then(|| {
                state.shown = asked;
                state.holder.seen = unix();
                state.holder.clone()
            })
        };
        if let Some(holder) = show {
            self.store.write(self.number, HOLDER, &serde_json::to_string(&holder)?).await?;
        }
        Ok(())
    }

    /// The same for a command that only waits: it asks now and then, and an unknown answer ends no wait.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn still(&self) -> Result<(), Lost> {
        if boot_time().saturating_sub(self.state().confirmed) < INTERVAL {
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
        boot_time().saturating_sub(self.state().confirmed) < self.window
    }

    /// Gives the deployment back. If that fails, the next command finds this one's process ended, or says what to do.
    pub async fn release(self) {
        if let Err(error) = self.store.write(self.number, RELEASED, "").await {
            log::debug!("giving the deployment back: {error:#}");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
