//! The files of a deployment's journal in the directory of a lease. Each is complete, and the last whole one counts.
//! Knows nothing of their content.

use anyhow::Context;
use serde::de::IgnoredAny;

use crate::lease::{Store, sorted};

/// The file of a note by its number, from 1. A lease begins with number 0 if it has copied the note of the one before
/// it.
pub(crate) fn file(number: usize) -> String {
    format!("deploy-{number:06}.json")
}

/// The number of a note. `None` for another file.
fn parsed(name: &str) -> Option<usize> {
    name.strip_prefix("deploy-")?.strip_suffix(".json")?.parse().ok()
}

/// Whether a file is of such a journal.
pub(super) fn owns(name: &str) -> bool {
    parsed(name).is_some()
}

/// The last lease that has such a journal, and its last note. One that was cut noted nothing. One that is not
/// understood to its end is of a later version, and is not skipped.
pub(crate) async fn last(store: &dyn Store) -> anyhow::Result<Option<Note>> {
    for hold in sorted(store).await.context("looking for the deployment's journal")?.into_iter().rev() {
        let note = of_hold(store, hold).await;
        let note = note.with_context(|| format!("reading the deployment's journal of lease {hold}"))?;
        if note.is_some() {
            return Ok(note);
        }
    }
    Ok(None)
}

pub(crate) struct Note {
    pub(crate) hold: u64,
    /// The name of the file.
    pub(crate) file: String,
    /// Its content: JSON.
    pub(crate) text: String,
}

async fn of_hold(store: &dyn Store, hold: u64) -> anyhow::Result<Option<Note>> {
    let files = store.files(hold).await?;
    let mut notes: Vec<(usize, String)> = files.into_iter().filter_map(|name| Some((parsed(&name)?, name))).collect();
    notes.sort();
    while let Some((_, file)) = notes.pop() {
        let Some(text) = store.read(hold, &file).await? else { continue };
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => return Ok(Some(Note { hold, file, text })),
            Err(error) if error.is_eof() => {}
            Err(error) => return Err(error).with_context(|| format!("understanding {file}")),
        }
    }
    Ok(None)
}
