//! The files of journals in the directories of leases: the owner of each, by its name, and which of them may be
//! removed. Knows nothing of the content of journals. [`crate::lease`] has the leases.
//!
//! Several kinds share a store: a cluster's own ([`deployment`]) and its upgrades' ([`upgrade`]). Those of workers have
//! a separate store. Each kind begins every lease with a copy of its entries, but a command knows its own kind alone.
//! So removal is decided here for all kinds, and only by the holder of the lease:
//!
//! 1. A command acquires the lease.
//! 2. [`prune`]: if there are too many old leases, the lowest are removed first. Before that, the only copy of a kind
//!    is copied into the new lease. While such a copy may still be written, no journal of its kind is begun there. The
//!    original of an upgrade's journal stays until the next command, for step 3 writes the same file again.
//! 3. It writes its journal, and does its work.
//! 4. [`clear`]: if it has noted that nothing of the cluster is left, all leases below its own are removed.
//! 5. It releases the lease. Until then no other command has begun, so no file in use is removed.
//!
//! A directory with a file of no known kind stays, and so do all above it: leases have no gaps. No command removes the
//! highest lease, for it alone says which number comes next. If a number came again, two commands would hold it: one
//! that had slept, and one that has created it again. No command removes the directory of all leases. A datastore
//! removes it only with its content, and a new command's lease may be in it.

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

/// The kind of a file in the directory of a lease, for stores that keep journals in another form than files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The record of a deployment's control-plane nodes: JSON of [`crate::control_plane::DeploymentRecord`]. Each is
    /// complete, and the last one counts.
    Deployment,
    /// The beginning of an upgrade's journal, as [`beginning`] makes it: the plan, or all entries of the lease before.
    UpgradeBegun,
    /// A line that is added to the journal: JSON of [`crate::upgrade::Entry`].
    UpgradeAdded {
        /// The number of the attempt at that line, from 1. An attempt whose answer was lost may have written its file.
        attempt: usize,
    },
    /// Something of the journals of workers.
    Workers,
    /// The owner of the lease, or a file of no known kind.
    Other,
}

impl File {
    /// The name of the record of a deployment's control-plane nodes.
    pub const DEPLOYMENT: &'static str = "deploy-000000.json";
    /// The name of the beginning of an upgrade's journal.
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

/// The kinds of journals in the directory of a lease. `None` if something else is in it.
async fn kinds(hold: &Lease<'_>, number: u64) -> anyhow::Result<Option<BTreeSet<Kind>>> {
    let files = hold.store().files(number).await?;
    Ok(files.iter().filter(|file| !is_of_hold(file)).map(|file| Kind::of(file)).collect())
}

/// A write of a copy that failed. A new upgrade begins with a file of the same name: it must not begin in this lease.
#[derive(Debug, thiserror::Error)]
#[error("a copy of the last upgrade's journal could not be kept, and may still land: run the command again")]
struct MayStillLand;

/// Removes old leases, if there are too many, but no entry that counts. An error here stops nothing else. Once the
/// operator asks the command to end, no more leases are looked at. Writes and removals that have begun are waited for.
///
/// # Errors
/// A copy of an upgrade's journal may still be written into this lease. A command that writes an upgrade's journal
/// releases the lease first.
pub(crate) async fn prune(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) -> anyhow::Result<()> {
    for &number in hold.old() {
        match let_go(hold, number, cancelled).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if error.is::<MayStillLand>() => return Err(error),
            Err(error) => {
                log::debug!("lease {number} stays: {error:#}");
                break;
            }
        }
    }
    Ok(())
}

/// The same for commands that write no journal of an upgrade.
pub async fn prune_beside_upgrades(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) {
    if let Err(error) = prune(hold, cancelled).await {
        log::debug!("old holds stay: {error:#}");
    }
}

/// Removes an old lease, unless something in it counts. False if it stays.
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

/// Removes all leases below this one, once nothing of the cluster is left. An error here stops nothing else. Once the
/// operator asks the command to end, no more leases are looked at. The next holder of the store that finds the cluster
/// gone tries again.
pub(crate) async fn clear(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) {
    if let Err(error) = let_all_go(hold, cancelled).await {
        log::warn!("what the cluster's journal had before stays: {error:#}");
    }
}

async fn let_all_go(hold: &Lease<'_>, cancelled: &watch::Receiver<bool>) -> anyhow::Result<()> {
    for number in unless_cancelled(cancelled, hold.below()).await?? {
        let kinds = unless_cancelled(cancelled, kinds(hold, number)).await??;
        if kinds.is_none_or(|kinds| kinds.contains(&Kind::Workers)) {
            bail!("lease {number} has something in it that is not the cluster's");
        }
        hold.remove(number).await?;
    }
    Ok(())
}

/// Whether a lease above this number has all entries of a kind that count, and keeps them. If none has, they are copied
/// into the caller's own. A copy of an upgrade's journal is no reason to remove its original. A command that continues
/// or begins an upgrade writes the copy's file once more in this lease, and may be killed meanwhile. The next command
/// finds it whole, or copies it again.
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
        let written = written.with_context(|| format!("copying {file} of lease {counts}"));
        let written = if kind == Kind::Upgrade { written.context(MayStillLand) } else { written };
        written?;
        return Ok(kind != Kind::Upgrade);
    }
    Ok(true)
}
