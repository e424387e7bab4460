//! The files of an upgrade's journal in the directory of a lease: its beginning, and the entries that were added. All
//! is read first and judged then, so that a store that does not answer is never taken for a damaged journal. Knows
//! nothing of the entries' content.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::de::IgnoredAny;

use super::beginning::whole;
use crate::lease::{Store, sorted};

/// The beginning of a lease's journal: the plan, or all entries of the lease before. Written before anything else.
pub(crate) const FILE: &str = "journal.jsonl";
/// An entry that the lease has added: the file of its number, from 1. Each is written once. A failed write may still
/// take effect, so the next attempt is a separate file, and overrides all before it.
pub(crate) fn added(number: usize, attempt: usize) -> String {
    match attempt {
        1 => format!("journal-{number:06}.json"),
        attempt => format!("journal-{number:06}-{attempt}.json"),
    }
}

/// The number and the attempt of a file. `None` for another file.
fn parsed(name: &str) -> Option<(usize, usize)> {
    let place = name.strip_prefix("journal-")?.strip_suffix(".json")?;
    let (number, attempt) = place.split_once('-').unwrap_or((place, "1"));
    Some((number.parse().ok()?, attempt.parse().ok()?))
}

/// The attempt at its entry that a file is. `None` if it is no entry.
pub(super) fn attempt(name: &str) -> Option<usize> {
    parsed(name).map(|(_, attempt)| attempt)
}

/// Whether a file is of such a journal.
pub(super) fn owns(name: &str) -> bool {
    name == FILE || parsed(name).is_some()
}

/// The last lease that has such a journal, and that journal.
pub(crate) async fn last(store: &dyn Store) -> anyhow::Result<Option<(u64, String)>> {
    for number in sorted(store).await.context("looking for the journal")?.into_iter().rev() {
        let kept = JournalFiles::read(store, number).await;
        let text =
            kept.and_then(|kept| kept.text()).with_context(|| format!("reading the journal of lease {number}"))?;
        if let Some(text) = text {
            return Ok(Some((number, text)));
        }
    }
    Ok(None)
}

/// The files of one lease's journal.
pub(crate) struct JournalFiles {
    begun: Option<String>,
    /// The attempts at each entry that it has added.
    added: BTreeMap<usize, BTreeMap<usize, String>>,
}

impl JournalFiles {
    /// Reads the journal of the lease `number`.
    ///
    /// # Errors
    /// When the store cannot be read: that says nothing of the journal.
    pub(crate) async fn read(store: &dyn Store, number: u64) -> anyhow::Result<Self> {
        let begun = store.read(number, FILE).await?;
        let mut added: BTreeMap<usize, BTreeMap<usize, String>> = BTreeMap::new();
        for name in store.files(number).await? {
            let Some((place, attempt)) = parsed(&name) else { continue };
            if let Some(text) = store.read(number, &name).await? {
                added.entry(place).or_default().insert(attempt, text);
            }
        }
        Ok(Self { begun, added })
    }

    /// The journal, one JSON object a line. `None` if the lease's command had begun nothing: the journal before it
    /// counts then.
    pub(crate) fn text(&self) -> anyhow::Result<Option<String>> {
        let added = self.entries()?;
        match self.begun.as_deref().map(whole).transpose().context(FILE)?.flatten() {
            Some(begun) => Ok(Some(begun.to_owned() + &added)),
            None if self.added.is_empty() => Ok(None),
            None if self.begun.is_none() => bail!("{FILE} is missing, and entries follow it"),
            None => bail!("{FILE} was cut, and entries follow it"),
        }
    }

    /// All lines that exist, even if others are missing.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        let added = self.added.values().filter_map(|attempts| attempts.values().next_back());
        self.begun.iter().chain(added).flat_map(|text| text.lines())
    }

    /// The entries that the lease has added. A last one that was cut is dropped: its writer got no confirmation, and
    /// has begun nothing of it.
    fn entries(&self) -> anyhow::Result<String> {
        let mut lines = String::new();
        let mut before = None;
        for (expected, (place, attempts)) in (1..).zip(&self.added) {
            if let Some(cut) = before {
                bail!("{} is damaged, and {} follows it", added(cut, 1), added(*place, 1));
            }
            if *place != expected {
                bail!("{} is missing, and {} follows it", added(expected, 1), added(*place, 1));
            }
            let is_whole = |line: &&String| serde_json::from_str::<IgnoredAny>(line).is_ok();
            match attempts.values().rev().find(is_whole) {
                Some(line) => lines = lines + line.trim_end() + "\n",
                None => before = Some(*place),
            }
        }
        Ok(lines)
    }
}
