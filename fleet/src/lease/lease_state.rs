//! The holder of the lease on a deployment, as far as its numbered directories tell.

use std::fmt;

use anyhow::{Context, bail};

use super::{Holder, Store};

/// The holder. It is written once, so that a later, cut write cannot remove the name.
pub(super) const HOLDER: &str = "holder.json";
/// When the holder last confirmed the lease, in seconds of Unix time. It is rewritten often.
pub(super) const SEEN: &str = "seen";
pub(super) const RELEASED: &str = "released";
/// Exists if the lease ended before it permitted anything. It says nothing about the lease before it.
pub(super) const WITHDRAWN: &str = "withdrawn";
/// Exists if a command does not know whether it created the directory. The command that created it and wrote its name
/// continues only if this file is missing. So no command continues with a directory that has this file and no name.
pub(super) const DOUBTED: &str = "doubted";
/// Exists once the former holder can begin nothing more.
pub(super) const ALONE: &str = "alone";

/// Whether a file in the directory of a lease describes only the lease itself.
pub(crate) fn is_of_hold(file: &str) -> bool {
    [HOLDER, SEEN, RELEASED, WITHDRAWN, DOUBTED, ALONE].contains(&file)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Free,
    /// By a command that has not released it, and is not known to have ended.
    Held(Held),
}

impl LeaseState {
    /// The holder in words for users. `None` if the lease is free.
    pub fn holder(self) -> Option<String> {
        match self {
            Self::Free => None,
            Self::Held(held) => Some(held.who()),
        }
    }
}

/// Another command holds the lease now.
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

/// Another command, which may be alive, holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Held {
    /// The number of its directory.
    pub number: u64,
    /// The holder. `None` until it has written its name, and for good if it was killed or its write was cut before
    /// that. The two cases look the same, so it counts as alive.
    pub holder: Option<Holder>,
}

impl Held {
    /// The holder, for users.
    pub fn who(&self) -> String {
        self.holder
            .as_ref()
            .map_or_else(|| format!("a command without a name (lease {})", self.number), Holder::to_string)
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds the lease of this deployment", self.who())?;
        if self.holder.is_none() {
            write!(f, ": it has just started, or was killed before it wrote its name")?;
        }
        Ok(())
    }
}

/// The holder of the lease.
pub async fn standing(store: &dyn Store) -> anyhow::Result<LeaseState> {
    Ok(judged(store).await?.standing)
}

pub(super) struct Judged {
    /// The next number.
    pub(super) next: u64,
    pub(super) standing: LeaseState,
    /// The holder that has ended without a release, if the lease is free. Its last request may still arrive.
    pub(super) ended: Option<Holder>,
}

/// Reads who holds the lease. A command that withdrew, or that ended while it waited to take over, says nothing about
/// the lease before it. That one's holder may be alive.
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

/// The cause of numbers that no command creates.
const BY_HAND: &str = "a numbered directory was copied, renamed or removed by hand; move it away";

/// Fails if a number between two others is missing. The holder below it asks for exactly the next number, and would
/// never learn of a higher one. And a copied directory has an old journal. Commands leave no gap: they create the next
/// number and remove the lowest. Below a gap, only leases count that permitted something. A command that slept may
/// create a removed number again, and then finds a higher one.
async fn no_gap(store: &dyn Store, numbers: &[u64]) -> anyhow::Result<()> {
    for (below, pair) in (1..).zip(numbers.windows(2)) {
        let &[low, high] = pair else { continue };
        // A listing takes time: a number that seems to be missing may just have been created, or removed after the ones
        // below it.
        if high - low <= 1 || store.exists(low + 1).await? || store.read(low, ALONE).await?.is_none() {
            continue;
        }
        let odd = if below < numbers.len() - below { low } else { high };
        bail!("after lease {low} comes lease {high}. Look at {odd:06}: {BY_HAND}");
    }
    Ok(())
}

/// Whether no command will ever continue with a number: it has no name, and a name that is written now does not count.
async fn is_nobodys(store: &dyn Store, number: u64) -> anyhow::Result<bool> {
    Ok(store.read(number, DOUBTED).await?.is_some() && holder(store, number).await?.is_none())
}

/// The holder of a number. `None` if it was not written, or only in part.
pub(super) async fn holder(store: &dyn Store, number: u64) -> anyhow::Result<Option<Holder>> {
    let text = store.read(number, HOLDER).await?;
    let Some(mut holder) = text.and_then(|text| serde_json::from_str::<Holder>(&text).ok()) else { return Ok(None) };
    // A part of a number is a lower one.
    let seen = store.read(number, SEEN).await?.and_then(|text| text.parse().ok());
    holder.seen = holder.seen.max(seen.unwrap_or_default());
    Ok(Some(holder))
}

/// The numbers, lowest first.
pub(crate) async fn sorted(store: &dyn Store) -> anyhow::Result<Vec<u64>> {
    let mut numbers = store.numbers().await?;
    numbers.sort_unstable();
    Ok(numbers)
}
