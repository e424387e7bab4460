//! The journal of one upgrade as a file: each entry is on the disk before anything follows from it. The cluster
//! keeps a copy.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::entry::{Entry, Event, parse, plan_of};
use super::plan::Plan;
use crate::files;

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    text: String,
    entries: Vec<Entry>,
}

impl Journal {
    /// The file of the journal in a directory.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("journal.jsonl")
    }

    /// Begins a journal with a plan. One that stands there is kept beside it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(directory: &Path, plan: Plan) -> anyhow::Result<Self> {
        let entry = Entry { at: now(), event: Event::Planned { plan: Box::new(plan) } };
        Self::place(directory, &format!("{}\n", serde_json::to_string(&entry)?))
    }

    /// Puts a copy that the cluster has kept into a directory.
    ///
    /// # Errors
    /// When it is no journal or cannot be written.
    pub fn place(directory: &Path, text: &str) -> anyhow::Result<Self> {
        parse(text)?;
        let path = Self::path(directory);
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(directory)?;
            if let Ok(before) = fs::read_to_string(&path) {
                let name = parse(&before).map_or_else(
                    |_| "damaged".to_owned(),
                    |entries| plan_of(&entries).map_or_else(|| "damaged".to_owned(), |plan| plan.id.to_string()),
                );
                fs::rename(&path, directory.join(format!("journal-{name}.jsonl")))?;
            }
            files::write(&path, text)
        };
        write().with_context(|| format!("writing the journal {}", path.display()))?;
        Self::open(directory)?.with_context(|| format!("the journal {} vanished", path.display()))
    }

    /// Opens the journal of a directory, if there is one. The beginning of a line
    /// that a crash has left at its end is cut off: nothing followed from it.
    ///
    /// # Errors
    /// When another command has it open, or it is damaged.
    pub fn open(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = Self::path(directory);
        if !path.exists() {
            return Ok(None);
        }
        let attempt = || format!("reading the journal {}", path.display());
        let file = File::options().append(true).open(&path).with_context(attempt)?;
        if file.try_lock().is_err() {
            bail!("another command is at work with the journal {}; wait until it has ended", path.display());
        }
        let mut text = fs::read_to_string(&path).with_context(attempt)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            text.truncate(whole);
            file.set_len(whole as u64).and_then(|()| file.sync_all()).with_context(attempt)?;
        }
        let entries = parse(&text).with_context(attempt)?;
        Ok(Some(Self { path, file, text, entries }))
    }

    /// Adds an entry: on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written; it must be opened again then.
    pub fn append(&mut self, event: Event) -> anyhow::Result<()> {
        let entry = Entry { at: now(), event };
        let line = format!("{}\n", serde_json::to_string(&entry)?);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_all());
        written.with_context(|| format!("writing the journal {}", self.path.display()))?;
        self.text.push_str(&line);
        self.entries.push(entry);
        Ok(())
    }

    /// The plan.
    ///
    /// # Panics
    /// Never: a journal begins with it, or is none.
    pub fn plan(&self) -> &Plan {
        plan_of(&self.entries).expect("a journal begins with its plan")
    }

    /// All entries, the plan first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The journal as it stands in the file.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod tests;
