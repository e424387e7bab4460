//! What can still be had of a journal that cannot be read: that it is damaged, and its plan. Each hold begins with a
//! copy of what the one before had, so the plan is there several times.

use anyhow::Context;

use super::entry::{Entry, Event, Outcome, parse};
use super::journal::{self, FILE};
use super::plan::Plan;
use super::reason::{self, Reason};
use crate::authority::{Store, sorted};

/// Why the journal cannot be read; none if it can, or there is none.
///
/// # Errors
/// When the store cannot be read: that says nothing of the journal.
pub(super) async fn damage(store: &dyn Store) -> anyhow::Result<Option<anyhow::Error>> {
    let read = match journal::last(store).await {
        Ok(Some(text)) => parse(&text).context("reading the journal").map(drop),
        other => other.map(drop),
    };
    let Err(damage) = read else { return Ok(None) };
    // The same error comes of a store that does not answer.
    for number in store.numbers().await.context("looking for the journal")? {
        store.read(number, FILE).await.with_context(|| format!("reading the journal of hold {number}"))?;
    }
    Ok(Some(damage))
}

/// The plan of the upgrade whose journal is damaged: of its last hold in which one is understood. A hold from which
/// another upgrade could begin, for its own had ended, is another upgrade's, and so is all before it.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn plan(store: &dyn Store) -> anyhow::Result<Option<Plan>> {
    let numbers = sorted(store).await.context("looking for a plan")?;
    let mut is_first = true;
    for number in numbers.into_iter().rev() {
        let read = understood(store, number).await.with_context(|| format!("looking for a plan in hold {number}"))?;
        let Some(entries) = read else { continue };
        if !is_first && entries.iter().any(is_last) {
            return Ok(None);
        }
        is_first = false;
        if let Some(Event::Planned { plan }) = entries.into_iter().next().map(|entry| entry.event) {
            return Ok(Some(*plan));
        }
    }
    Ok(None)
}

/// Whether nothing of an upgrade follows this entry. A new image that is not final can still be taken back.
fn is_last(entry: &Entry) -> bool {
    matches!(entry.event, Event::Ended { outcome } if outcome != Outcome::Upgraded)
}

/// The entries of a hold's journal that are understood; none if its command had begun nothing.
async fn understood(store: &dyn Store, number: u64) -> anyhow::Result<Option<Vec<Entry>>> {
    if matches!(journal::of(store, number).await, Ok(None)) {
        return Ok(None);
    }
    let mut files: Vec<String> = store.files(number).await?.into_iter().filter(|file| journal::is_entry(file)).collect();
    files.sort_unstable();
    let mut entries = Vec::new();
    for file in [FILE.to_owned()].into_iter().chain(files) {
        let text = store.read(number, &file).await?.unwrap_or_default();
        entries.extend(text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok()));
    }
    Ok(Some(entries))
}

/// Why an upgrade ends of which only the plan is known.
pub(super) fn unknown(damage: &anyhow::Error) -> Reason {
    let words = format!(
        "asked for by the operator, with a journal that cannot be read. Which steps were taken, which VMs they made and \
         where a disk was moved to is not known: compare the VMs with the plan. {damage:#}"
    );
    Reason::new(reason::ASKED, words)
}
