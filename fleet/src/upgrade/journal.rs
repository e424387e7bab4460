//! The journal of one upgrade: each entry is kept before anything follows from it. A lease begins with a copy of the
//! entries of the one before. So a command that was overtaken, and wakes up, writes into a journal that is no longer
//! read. After the copy, each entry is a separate file: a write that is cut damages nothing that was kept before it.

use std::collections::BTreeSet;

use anyhow::{Context, bail};

use super::abandoned_unread::AbandonedUnread;
use super::entry::{Direction, Entry, Event, parse, plan_of};
use super::order::Order;
use super::plan::Plan;
use super::progress::Progress;
use crate::engine::Reason;
use crate::journals::beginning;
use crate::journals::upgrade::{self, FILE, added};
use crate::lease::{Lease, Store};
use crate::timestamp;

pub struct Journal<'a> {
    hold: &'a Lease<'a>,
    entries: Vec<Entry>,
    /// How many of the entries this lease has added.
    added: usize,
    /// How many attempts to add the next one have not succeeded.
    attempts: usize,
}

impl<'a> Journal<'a> {
    /// Begins a journal with a plan.
    ///
    /// # Errors
    /// When it cannot be written: the upgrade does not exist then.
    pub async fn begin(hold: &'a Lease<'a>, plan: Plan) -> anyhow::Result<Self> {
        let entry = entry(hold, Event::Planned { plan: Box::new(plan) });
        hold.confirm().await?;
        Self::with(hold, &line(&entry)?, vec![entry]).await
    }

    /// Continues the journal of the lease before.
    ///
    /// # Errors
    /// When no journal exists, it is not understood, or cannot be written: the one before counts then.
    pub async fn continued(hold: &'a Lease<'a>) -> anyhow::Result<Self> {
        let Some(text) = last(hold.store()).await? else {
            bail!("there is no upgrade of this deployment");
        };
        let entries = parse(&text).context("reading the journal")?;
        Self::with(hold, &text, entries).await
    }

    /// Begins the end of an upgrade of whose journal only the plan is left. Both are written at once, so that no
    /// command goes forward by that plan.
    pub(super) async fn salvaged(hold: &'a Lease<'a>, plan: Plan, reason: Reason) -> anyhow::Result<Self> {
        let turned = Event::DirectionChanged {
            direction: Direction::Abandon,
            only: None,
            order: Order::LastFirst,
            left_out: BTreeSet::new(),
            reason,
        };
        let entries = vec![entry(hold, Event::Planned { plan: Box::new(plan) }), entry(hold, turned)];
        let text = entries.iter().map(line).collect::<anyhow::Result<String>>()?;
        hold.confirm().await?;
        Self::with(hold, &text, entries).await
    }

    async fn with(hold: &'a Lease<'a>, text: &str, entries: Vec<Entry>) -> anyhow::Result<Self> {
        let whole = beginning(text)?;
        hold.store().write(hold.number(), FILE, &whole).await.context("writing the journal")?;
        Ok(Self { hold, entries, added: 0, attempts: 0 })
    }

    /// Adds an entry: it is kept when this returns. If this is dropped half-way, the journal is as after an error.
    ///
    /// # Errors
    /// When it cannot be written, or another command has taken over. Nothing may follow from it then. A later reader
    /// may find it, unless it is added again, or another one in its place.
    pub async fn append(&mut self, event: Event) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        let entry = entry(self.hold, event);
        let line = line(&entry)?;
        self.attempts += 1;
        let file = added(self.added + 1, self.attempts);
        self.hold.store().write(self.hold.number(), &file, &line).await.context("writing the journal")?;
        self.entries.push(entry);
        (self.added, self.attempts) = (self.added + 1, 0);
        Ok(())
    }

    /// The plan that it begins with.
    ///
    /// # Panics
    /// Never: every journal begins with its plan.
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

    /// All entries, one JSON object a line.
    #[cfg(test)]
    fn text(&self) -> String {
        self.entries.iter().map(|entry| line(entry).expect("an entry")).collect()
    }
}

fn entry(hold: &Lease<'_>, event: Event) -> Entry {
    Entry { at: timestamp::now(), lease: hold.number(), event }
}

fn line(entry: &Entry) -> anyhow::Result<String> {
    Ok(serde_json::to_string(entry)? + "\n")
}

/// The journal of the last lease that has one: one JSON object a line. `None` if that upgrade was abandoned unread:
/// nothing is known of it.
///
/// # Errors
/// When the store cannot be read, or a file of it is damaged that others follow.
pub async fn last(store: &dyn Store) -> anyhow::Result<Option<String>> {
    Ok(upgrade::last(store).await?.map(|(_, text)| text).filter(|text| AbandonedUnread::read(text).is_none()))
}

#[cfg(test)]
mod tests;
