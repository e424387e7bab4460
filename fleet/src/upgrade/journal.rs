//! The journal of one upgrade: each entry is kept before anything follows from it. A hold writes its own copy, so that
//! a command that was overtaken, and wakes up, writes into a journal that nobody reads any more.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::entry::{Entry, Event, parse, plan_of};
use super::plan::Plan;
use super::progress::Progress;
use crate::authority::{Hold, Store};

const FILE: &str = "journal.jsonl";

/// An open journal.
pub struct Journal<'a> {
    hold: &'a Hold<'a>,
    text: String,
    entries: Vec<Entry>,
}

impl<'a> Journal<'a> {
    /// Begins a journal with a plan.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn begin(hold: &'a Hold<'a>, plan: Plan) -> anyhow::Result<Self> {
        let mut journal = Self { hold, text: String::new(), entries: Vec::new() };
        journal.append(Event::Planned { plan: Box::new(plan) }).await?;
        Ok(journal)
    }

    /// Goes on with the journal of the hold before.
    ///
    /// # Errors
    /// When there is none, it is not understood, or cannot be written.
    pub async fn continued(hold: &'a Hold<'a>) -> anyhow::Result<Self> {
        let Some(text) = last(hold.store()).await? else {
            bail!("there is no upgrade of this deployment");
        };
        let entries = parse(&text).context("reading the journal")?;
        hold.store().write(hold.number(), FILE, &text).await.context("writing the journal")?;
        Ok(Self { hold, text, entries })
    }

    /// Adds an entry: it is kept when this returns.
    ///
    /// # Errors
    /// When it cannot be written, or another command has taken over; nothing was added then.
    pub async fn append(&mut self, event: Event) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let entry = Entry { at, hold: self.hold.number(), event };
        let text = format!("{}{}\n", self.text, serde_json::to_string(&entry)?);
        self.hold.store().write(self.hold.number(), FILE, &text).await.context("writing the journal")?;
        self.text = text;
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

    /// How far the upgrade is.
    pub fn progress(&self) -> Progress {
        Progress::of(self.plan(), &self.entries)
    }

    /// The journal as it is kept.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The journal of the last hold that has one.
///
/// # Errors
/// When the store cannot be read.
pub async fn last(store: &dyn Store) -> anyhow::Result<Option<String>> {
    let mut numbers = store.numbers().await.context("looking for the journal")?;
    numbers.sort_unstable();
    for number in numbers.into_iter().rev() {
        if let Some(text) = store.read(number, FILE).await.context("reading the journal")? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod tests;
