//! The files of journals in the directories of holds: whose each is, by its name, and what of them may go. Knows nothing of what
//! journals say; what a hold is, and who has one, is [`crate::lease`].
//!
//! Several kinds share a store: a cluster's own ([`deployment`]) and its upgrades' ([`upgrade`]); its workers' have one of their
//! own. Each begins every hold with a copy of what it had, but a command knows its own kind alone. So what is removed is decided
//! here for all of them, and only by whoever holds the store:
//!
//! 1. a command takes the hold;
//! 2. [`prune`]: too many old holds go, the lowest first. What a kind has nowhere else is copied into the new hold before; while
//!    such a copy may still land, no journal of its kind is begun there. An upgrade's stays where it was as well until the next command,
//!    for step 3 writes the same file again;
//! 3. it writes its journal, and does its work;
//! 4. [`clear`], where it has noted that nothing of the cluster is left: all holds below its own go;
//! 5. it gives the hold back. Until then nobody else has begun, so nothing is removed that another one stands on.
//!
//! A directory with a file that is nobody's here stays, and so do all above it: holds have no gaps. The highest hold is removed
//! by no command: it alone says which number comes next, and a number that came again would let two commands hold it, the one
//! that had slept and the one that has made it anew. Nor is the directory that they are all in: a datastore removes
//! it only with all that is in it, with the hold of one who has begun meanwhile as well.

mod beginning;
pub(crate) mod deployment;
#[cfg(test)]
mod tests;
pub(crate) mod upgrade;
pub(crate) mod workers;

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use tokio::sync::watch;

pub use beginning::{beginning, check_record, record_text, whole};

use crate::cancel::unless_cancelled;
use crate::lease::{Lease, is_of_hold};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Deployment,
    Upgrade,
    Workers,
}

impl Kind {
    fn of(file: &str) -> Option<Self> {
        let owns = [
            (Self::Deployment, deployment::owns(file)),
            (Self::Upgrade, upgrade::owns(file)),
            (Self::Workers, workers::owns(file)),
        ];
        owns.into_iter().find_map(|(kind, owns)| owns.then_some(kind))
    }
}

/// What a file in the directory of a hold is: for stores that keep journals as something else than files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// What was begun for a deployment's control nodes: JSON of [`crate::control_plane::DeploymentRecord`]. Each says all, and the last one counts.
    Deployment,
    /// What the journal of an upgrade begins with, as [`beginning`] makes it: the plan, or all that the hold before had.
    UpgradeBegun,
    /// A line that is added to it: JSON of [`crate::upgrade::Entry`].
    UpgradeAdded {
        /// Which attempt it is at that line, from 1: what one has written whose answer was lost may be there.
        attempt: usize,
    },
    /// Something of the journals of workers.
    Workers,
    /// Whose the hold is, and nothing else; or something that is nobody's.
    Other,
}

impl File {
    /// A name of what was begun for a deployment's control nodes.
    pub const DEPLOYMENT: &'static str = "deploy-000000.json";
    /// The name of what the journal of an upgrade begins with.
    pub const UPGRADE: &'static str = upgrade::FILE;

    pub fn of(name: &str) -> Self {
        match Kind::of(name) {
            Some(Kind::Deployment) => Self::Deployment,
            Some(Kind::Upgrade) => {
                upgrade::attempt(name).map_or(Self::UpgradeBegun, |attempt| Self::UpgradeAdded { attempt })
            }
            Some(Kind::Workers) => Self::Workers,
            None => Self::Other,
        }
    }
}

/// The kinds of journals in the directory of a hold; none if something else is in it.
async fn kinds(hold: &Lease<'_>, number: u64) -> anyhow::Result<Option<BTreeSet<Kind>>> {
    let files = hold.store().files(number).await?;
    Ok(files.iter().filter(|file| !is_of_hold(file)).map(|file| Kind::of(file)).collect())
}

/// A write of a copy that failed. A new upgrade begins with a file of the same name: it must not begin in this hold.
#[derive(Debug, thiserror::Error)]
#[error("a copy of the last upgrade's journal could not be kept, and may still land: give the command again")]
struct MayStillLand;

/// Lets go of old holds, if there are too many, but of nothing that counts. What hinders that hinders nothing else, and once the
/// operator asks to end nothing more is looked at: what is being written or removed by then is waited for.
///
/// # Errors
/// A copy of an upgrade's journal may still land in this hold: whoever writes one of his own gives the hold back first.
pub(crate) async fn prune(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) -> anyhow::Result<()> {
    for &number in hold.old() {
        match let_go(hold, number, cancelled).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if error.is::<MayStillLand>() => return Err(error),
            Err(error) => {
                log::debug!("hold {number} stays: {error:#}");
                break;
            }
        }
    }
    Ok(())
}

/// The same for who writes no journal of an upgrade.
pub async fn prune_beside_upgrades(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) {
    if let Err(error) = prune(hold, cancelled).await {
        log::debug!("old holds stay: {error:#}");
    }
}

/// Removes an old hold, unless something in it counts. False if it stays.
async fn let_go(hold: &Lease<'_>, number: u64, cancelled: &watch::Receiver<bool>) -> anyhow::Result<bool> {
    let Some(kinds) = unless_cancelled(cancelled, kinds(hold, number)).await?? else { return Ok(false) };
    for kind in kinds {
        if !is_kept_above(hold, kind, number, cancelled).await? {
            return Ok(false);
        }
    }
    hold.remove(number).await?;
    Ok(true)
}

/// Lets go of all holds below this one, once nothing of the cluster is left. What hinders that hinders nothing else, and once the
/// operator asks to end nothing more is looked at: who holds the store next, and finds it so, tries again.
pub(crate) async fn clear(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) {
    if let Err(error) = let_all_go(hold, cancelled).await {
        log::warn!("what the cluster's journal had before stays: {error:#}");
    }
}

async fn let_all_go(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) -> anyhow::Result<()> {
    for number in unless_cancelled(cancelled, hold.below()).await?? {
        let kinds = unless_cancelled(cancelled, kinds(hold, number)).await??;
        if kinds.is_none_or(|kinds| kinds.contains(&Kind::Workers)) {
            bail!("hold {number} has something in it that is not the cluster's");
        }
        hold.remove(number).await?;
    }
    Ok(())
}

/// Whether a hold above this number has all that counts of a kind, and keeps it; it is copied into one's own if none has. A copy of an
/// upgrade's journal is no reason to remove the one that it was made of: who goes on with that upgrade, or begins one, writes the file of
/// the copy once more in this hold, and may be cut off at that. The next command finds it whole, or copies it again.
async fn is_kept_above(
    hold: &Lease<'_>,
    kind: Kind,
    number: u64,
    cancelled: &watch::Receiver<bool>,
) -> anyhow::Result<bool> {
    let store = hold.store();
    let (counts, copy) = match kind {
        Kind::Deployment => match unless_cancelled(cancelled, deployment::last(store)).await?? {
            Some(note) => (note.hold, (deployment::file(0), note.text)),
            None => return Ok(true),
        },
        Kind::Upgrade => match unless_cancelled(cancelled, upgrade::last(store)).await?? {
            Some((counts, lines)) => (counts, (upgrade::FILE.to_owned(), beginning(&lines)?)),
            None => return Ok(true),
        },
        // They begin each hold with all that they have.
        Kind::Workers => {
            let counts = unless_cancelled(cancelled, workers::counts(store)).await??;
            return Ok(counts.is_none_or(|counts| counts > number));
        }
    };
    if counts <= number {
        let (file, text) = copy;
        hold.confirm().await?;
        let written = store.write(hold.number(), &file, &text).await;
        let written = written.with_context(|| format!("copying {file} of hold {counts}"));
        let written = if kind == Kind::Upgrade { written.context(MayStillLand) } else { written };
        written?;
        return Ok(kind != Kind::Upgrade);
    }
    Ok(true)
}
