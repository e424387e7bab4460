//! Who is at work on a deployment, as far as that can be told from its numbered directories.

use std::fmt;

use anyhow::{Context, bail};

use super::{Holder, Store};

/// Who it is: written once, so that no later write that is cut takes the name away.
pub(super) const HOLDER: &str = "holder.json";
/// When it last confirmed that it holds the deployment: seconds of Unix time, written again and again.
pub(super) const SEEN: &str = "seen";
pub(super) const RELEASED: &str = "released";
/// There when its maker has ended before it was permitted anything: it says nothing of the one before it.
pub(super) const WITHDRAWN: &str = "withdrawn";
/// There when somebody does not know whether he has made the directory. Whoever has made it, and has said his name, goes
/// on only if he does not find this then: so nobody goes on with one that has this and no name.
pub(super) const DOUBTED: &str = "doubted";
/// There once whoever was taken over from can have begun nothing more.
pub(super) const ALONE: &str = "alone";

/// Whether a file in the directory of a hold says whose it is, and nothing else.
pub(crate) fn is_of_hold(file: &str) -> bool {
    [HOLDER, SEEN, RELEASED, WITHDRAWN, DOUBTED, ALONE].contains(&file)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Free,
    /// A command that has not given it back, and is not known to have ended.
    Held(Held),
}

impl LeaseState {
    /// Who is at work, for people; none if nobody is.
    pub fn holder(self) -> Option<String> {
        match self {
            Self::Free => None,
            Self::Held(held) => Some(held.who()),
        }
    }
}

/// The deployment is another command's now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Lost(pub Option<Holder>);

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
pub struct Held {
    /// The number of its directory.
    pub number: u64,
    /// Who it is. None while it has not said its name; for ever if it was killed, or its write cut, before it
    /// had. Nothing tells one from the other, so it counts as alive.
    pub holder: Option<Holder>,
}

impl Held {
    /// Who it is, for people.
    pub fn who(&self) -> String {
        self.holder
            .as_ref()
            .map_or_else(|| format!("a command without a name (hold {})", self.number), Holder::to_string)
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is at work on this deployment", self.who())?;
        if self.holder.is_none() {
            write!(f, ": it has just begun, or was killed before it had said its name")?;
        }
        Ok(())
    }
}

/// Who holds the deployment.
pub async fn standing(store: &dyn Store) -> anyhow::Result<LeaseState> {
    Ok(judged(store).await?.standing)
}

pub(super) struct Judged {
    /// The number that comes next.
    pub(super) next: u64,
    pub(super) standing: LeaseState,
    /// Who has ended without giving it back, if nobody holds it: what it asked for last may still arrive.
    pub(super) ended: Option<Holder>,
}

/// Looks who holds the deployment. A command that ended while it waited to take over, or withdrew, says nothing of the
/// one before it: that one may be alive.
pub(super) async fn judged(store: &dyn Store) -> anyhow::Result<Judged> {
    let numbers = sorted(store).await?;
    no_gap(store, &numbers).await?;
    let highest = numbers.last().copied().unwrap_or_default();
    let next = highest.checked_add(1).filter(|next| *next < u64::MAX);
    let next = next.with_context(|| format!("no number follows {highest}: {BY_HAND}"))?;
    let free = |ended| Ok(Judged { next, standing: LeaseState::Free, ended });
    for number in numbers.into_iter().rev() {
        if store.read(number, RELEASED).await?.is_some() {
            break;
        }
        if store.read(number, WITHDRAWN).await?.is_some() || is_nobodys(store, number).await? {
            continue;
        }
        match holder(store, number).await? {
            Some(dead) if store.has_ended(&dead).await? => {
                if store.read(number, ALONE).await?.is_some() {
                    return free(Some(dead));
                }
            }
            holder => return Ok(Judged { next, standing: LeaseState::Held(Held { number, holder }), ended: None }),
        }
    }
    free(None)
}

/// What makes numbers that no command makes.
const BY_HAND: &str = "a numbered directory was copied, renamed or removed by hand; move it away";

/// Fails when a number is missing between two. Whoever holds the one before it asks for exactly the next one, and would
/// never learn that a higher one was made; and of a copy the journal is an old one. Commands leave no gap: they make
/// the next number and remove the lowest. Below a gap only what was permitted anything counts: who slept may make a number
/// anew that was removed, and finds a higher one then.
async fn no_gap(store: &dyn Store, numbers: &[u64]) -> anyhow::Result<()> {
    for (below, pair) in (1..).zip(numbers.windows(2)) {
        let &[low, high] = pair else { continue };
        // A listing takes a while: a number that seems to be missing may just have been made, or removed after the
        // ones below it.
        if high - low <= 1 || store.exists(low + 1).await? || store.read(low, ALONE).await?.is_none() {
            continue;
        }
        let odd = if below < numbers.len() - below { low } else { high };
        bail!("after hold {low} comes hold {high}. Look at {odd:06}: {BY_HAND}");
    }
    Ok(())
}

/// Whether nobody will ever go on with a number: it has no name, and one is said only in vain from now on.
async fn is_nobodys(store: &dyn Store, number: u64) -> anyhow::Result<bool> {
    Ok(store.read(number, DOUBTED).await?.is_some() && holder(store, number).await?.is_none())
}

/// Who has a number; none if that was not written, or only in part.
pub(super) async fn holder(store: &dyn Store, number: u64) -> anyhow::Result<Option<Holder>> {
    let text = store.read(number, HOLDER).await?;
    let Some(mut holder) = text.and_then(|text| serde_json::from_str::<Holder>(&text).ok()) else { return Ok(None) };
    // A part of a number is a lower one.
    let seen = store.read(number, SEEN).await?.and_then(|text| text.parse().ok());
    holder.seen = holder.seen.max(seen.unwrap_or_default());
    Ok(Some(holder))
}

/// The numbers, the lowest first.
pub(crate) async fn sorted(store: &dyn Store) -> anyhow::Result<Vec<u64>> {
    let mut numbers = store.numbers().await?;
    numbers.sort_unstable();
    Ok(numbers)
}
