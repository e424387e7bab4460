//! The files of a journal in the directory of a hold: its beginning, and the entries that were added. All is read first
//! and judged then, so that a store that does not answer is never taken for a damaged journal.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::authority::Store;

/// What a hold's journal begins with: the plan, or all that the hold before had. Written before anything else.
pub(super) const FILE: &str = "journal.jsonl";
/// How its text begins since it has a first line of its own, from which its end is known. What has none is of version
/// 0.1, which kept all entries in this one file and wrote it whole each time; it does not understand that line.
const HEAD: &str = "{\"form\":";
const FORM: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Head {
    form: u32,
    /// How many lines follow.
    entries: usize,
}

/// The text of a hold's first file that has these lines.
pub(crate) fn beginning(lines: &str) -> anyhow::Result<String> {
    let head = serde_json::to_string(&Head { form: FORM, entries: lines.lines().count() })?;
    Ok(format!("{head}\n{lines}"))
}

/// An entry that the hold has added: the file of its number, from 1. Each is written once: a write that failed may still
/// land, so that the next attempt is a file of its own, and counts more than all before it.
pub(super) fn added(number: usize, attempt: usize) -> String {
    match attempt {
        1 => format!("journal-{number:06}.json"),
        attempt => format!("journal-{number:06}-{attempt}.json"),
    }
}

/// The number and the attempt that a file is of; none if it is another file.
fn parsed(name: &str) -> Option<(usize, usize)> {
    let place = name.strip_prefix("journal-")?.strip_suffix(".json")?;
    let (number, attempt) = place.split_once('-').unwrap_or((place, "1"));
    Some((number.parse().ok()?, attempt.parse().ok()?))
}

/// The files of one hold's journal.
pub(super) struct JournalFiles {
    begun: Option<String>,
    /// The attempts at each entry that it has added.
    added: BTreeMap<usize, BTreeMap<usize, String>>,
}

impl JournalFiles {
    /// Reads it.
    ///
    /// # Errors
    /// When the store cannot be read: that says nothing of the journal.
    pub(super) async fn read(store: &dyn Store, number: u64) -> anyhow::Result<Self> {
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

    /// The journal, one JSON object a line; none if the hold's command had begun nothing: the journal before it counts
    /// then.
    ///
    /// # Errors
    /// When it is damaged.
    pub(super) fn text(&self) -> anyhow::Result<Option<String>> {
        let added = self.entries()?;
        match self.begun.as_deref().map(whole).transpose().context(FILE)?.flatten() {
            Some(begun) => Ok(Some(begun.to_owned() + &added)),
            None if self.added.is_empty() => Ok(None),
            None if self.begun.is_none() => bail!("{FILE} is missing, and entries follow it"),
            None => bail!("{FILE} was cut, and entries follow it"),
        }
    }

    /// The entries that are understood, whatever became of the others.
    pub(super) fn understood(&self) -> Vec<Entry> {
        let added = self.added.values().filter_map(|attempts| attempts.values().next_back());
        let lines = self.begun.iter().chain(added).flat_map(|text| text.lines());
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What the hold has added. A last one that was cut is dropped: who wrote it was not told that it is kept, and had
    /// begun nothing that it notes.
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

/// The entries of a journal's first file; none if its writing was cut.
pub(crate) fn whole(text: &str) -> anyhow::Result<Option<&str>> {
    if !text.starts_with(HEAD) && !HEAD.starts_with(text) {
        return Ok(Some(text));
    }
    let Some((head, lines)) = text.split_once('\n') else { return Ok(None) };
    let head: Head = serde_json::from_str(head).context("its first line")?;
    if head.form != FORM {
        bail!(
            "it is of form {}, and {FORM} is known: another version wrote it; end with that what it began",
            head.form
        );
    }
    Ok((lines.ends_with('\n') && lines.lines().count() == head.entries).then_some(lines))
}
