//! Reads an unreadable journal as far as possible: that it is damaged, and its plan. Each lease begins with a copy of
//! the entries of the one before, so the plan is kept several times.

use anyhow::Context;

use super::abandoned_unread::AbandonedUnread;
use super::entry::{Entry, Event, Outcome, parse};
use super::plan::Plan;
use super::reason;
use crate::engine::Reason;
use crate::journals::upgrade::JournalFiles;
use crate::lease::{Store, sorted};

/// The journal of the last upgrade cannot be read: it cannot be continued, and no other one begins before it has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Damaged {
    pub words: String,
    /// The number of the lease whose journal it is.
    pub hold: u64,
    /// Its plan, if a copy is left: that ends it, and the plan's identifier names it. Without a plan the lease's number
    /// names it.
    pub plan: Option<Box<Plan>>,
}

pub(super) enum Last {
    /// No upgrade exists.
    Nothing,
    Entries(Vec<Entry>),
    Unread(AbandonedUnread),
}

/// The entries of the deployment's last upgrade. `None` if it was abandoned unread, or no upgrade exists.
pub(super) async fn read(store: &dyn Store) -> anyhow::Result<Option<Vec<Entry>>> {
    match last(store).await? {
        Last::Entries(entries) => Ok(Some(entries)),
        Last::Nothing | Last::Unread(_) => Ok(None),
    }
}

/// The records of the deployment's last upgrade.
///
/// # Errors
/// [`Damaged`] if its entries cannot be understood, another error if the store cannot be read: that says nothing of them.
pub(super) async fn last(store: &dyn Store) -> anyhow::Result<Last> {
    let mut numbers = sorted(store).await.context("looking for the journal")?;
    while let Some(number) = numbers.pop() {
        let attempt = || format!("reading the journal of lease {number}");
        let kept = JournalFiles::read(store, number).await.with_context(attempt)?;
        let text = kept.text();
        if let Ok(Some(text)) = &text
            && let Some(end) = AbandonedUnread::read(text)
        {
            return Ok(Last::Unread(end));
        }
        let read = text.and_then(|text| text.as_deref().map(parse).transpose());
        match read.with_context(attempt) {
            Ok(None) => {}
            Ok(Some(entries)) => return Ok(Last::Entries(entries)),
            Err(damage) => {
                let plan = plan(store, kept, &numbers).await?.map(Box::new);
                return Err(Damaged { words: format!("{damage:#}"), hold: number, plan }.into());
            }
        }
    }
    Ok(Last::Nothing)
}

/// The plan of the upgrade whose journal is damaged. It is of its last lease in which one is understood, this one or
/// one `before`. A lease whose upgrade had ended belongs to another upgrade, and so do all before it.
async fn plan(store: &dyn Store, damaged: JournalFiles, before: &[u64]) -> anyhow::Result<Option<Plan>> {
    if let Some(plan) = plan_of(understood(&damaged)) {
        return Ok(Some(plan));
    }
    for &number in before.iter().rev() {
        let kept =
            JournalFiles::read(store, number).await.with_context(|| format!("looking for a plan in lease {number}"))?;
        let (text, entries) = (kept.text(), understood(&kept));
        if matches!(text, Ok(None)) {
            continue;
        }
        if entries.iter().any(is_last) || matches!(text, Ok(Some(text)) if AbandonedUnread::read(&text).is_some()) {
            return Ok(None);
        }
        if let Some(plan) = plan_of(entries) {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// The entries that are understood, even if others are not.
fn understood(kept: &JournalFiles) -> Vec<Entry> {
    kept.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn plan_of(entries: Vec<Entry>) -> Option<Plan> {
    match entries.into_iter().next()?.event {
        Event::Planned { plan } => Some(*plan),
        _ => None,
    }
}

/// Whether nothing of an upgrade follows this entry. A new image that is not final can still be rolled back.
fn is_last(entry: &Entry) -> bool {
    matches!(entry.event, Event::Ended { outcome } if outcome != Outcome::Upgraded)
}

/// Why an upgrade ends whose plan alone is known.
pub(super) fn unknown(damage: &Damaged) -> Reason {
    let words = format!(
        "asked for by the operator, with a journal that cannot be read. Which steps were taken, which VMs they made and \
         where a disk was moved to is not known: compare the VMs with the plan. {damage}"
    );
    Reason::new(reason::ASKED, words)
}
