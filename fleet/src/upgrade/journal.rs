//! The journal of one upgrade: each entry is kept before anything follows from it. A hold begins with a copy of what
//! the one before it had, so that a command that was overtaken, and wakes up, writes into a journal that nobody reads
//! any more; then each entry is a file of its own. So a write that is cut damages nothing that was kept before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::entry::{Direction, Entry, Event, Order, parse, plan_of};
use super::plan::Plan;
use super::progress::Progress;
use super::reason::Reason;
use crate::authority::{Hold, Store, sorted};

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

/// An entry that the hold has added: the file of its number, from 1. Each is written once: a write that failed may still
/// land, so that the next attempt is a file of its own, and counts more than all before it.
fn added(number: usize, attempt: usize) -> String {
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

/// An open journal.
pub struct Journal<'a> {
    hold: &'a Hold<'a>,
    text: String,
    entries: Vec<Entry>,
    /// How many of the entries this hold has added.
    added: usize,
    /// How many attempts to add the next one have not succeeded.
    attempts: usize,
}

impl<'a> Journal<'a> {
    /// Begins a journal with a plan.
    ///
    /// # Errors
    /// When it cannot be written: there is no such upgrade then.
    pub async fn begin(hold: &'a Hold<'a>, plan: Plan) -> anyhow::Result<Self> {
        let entry = entry(hold, Event::Planned { plan: Box::new(plan) });
        hold.confirm().await?;
        Self::with(hold, line(&entry)?, vec![entry]).await
    }

    /// Goes on with the journal of the hold before.
    ///
    /// # Errors
    /// When there is none, it is not understood, or cannot be written: the one before counts then.
    pub async fn continued(hold: &'a Hold<'a>) -> anyhow::Result<Self> {
        let Some(text) = last(hold.store()).await? else {
            bail!("there is no upgrade of this deployment");
        };
        let entries = parse(&text).context("reading the journal")?;
        Self::with(hold, text, entries).await
    }

    /// Begins the end of an upgrade of whose journal only the plan is left: both at once, so that nobody goes forward
    /// by that plan.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) async fn salvaged(hold: &'a Hold<'a>, plan: Plan, reason: Reason) -> anyhow::Result<Self> {
        let turned =
            Event::DirectionChanged { direction: Direction::Abandon, only: None, order: Order::LastFirst, reason };
        let entries = vec![entry(hold, Event::Planned { plan: Box::new(plan) }), entry(hold, turned)];
        let text = entries.iter().map(line).collect::<anyhow::Result<String>>()?;
        hold.confirm().await?;
        Self::with(hold, text, entries).await
    }

    async fn with(hold: &'a Hold<'a>, text: String, entries: Vec<Entry>) -> anyhow::Result<Self> {
        let head = serde_json::to_string(&Head { form: FORM, entries: entries.len() })?;
        let whole = format!("{head}\n{text}");
        hold.store().write(hold.number(), FILE, &whole).await.context("writing the journal")?;
        Ok(Self { hold, text, entries, added: 0, attempts: 0 })
    }

    /// Adds an entry: it is kept when this returns. Whoever drops this half-way has added nothing as far as this
    /// journal goes; it is as after an error.
    ///
    /// # Errors
    /// When it cannot be written, or another command has taken over. Nothing may follow from it then; whoever reads
    /// the journal may find it, unless it is added again, or another one in its place.
    pub async fn append(&mut self, event: Event) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        let entry = entry(self.hold, event);
        let line = line(&entry)?;
        self.attempts += 1;
        let file = added(self.added + 1, self.attempts);
        self.hold.store().write(self.hold.number(), &file, &line).await.context("writing the journal")?;
        self.text += &line;
        self.entries.push(entry);
        (self.added, self.attempts) = (self.added + 1, 0);
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

    /// All entries, one JSON object a line.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn entry(hold: &Hold<'_>, event: Event) -> Entry {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Entry { at, hold: hold.number(), event }
}

fn line(entry: &Entry) -> anyhow::Result<String> {
    Ok(serde_json::to_string(entry)? + "\n")
}

/// The journal of the last hold that has one: one JSON object a line.
///
/// # Errors
/// When the store cannot be read, or a file of it is damaged that others follow.
pub async fn last(store: &dyn Store) -> anyhow::Result<Option<String>> {
    Ok(find(store).await?.map(|(_, text)| text))
}

/// Lets go of old holds, but of none from the one on whose journal counts. What hinders that hinders nothing else.
pub async fn prune(hold: &Hold<'_>) {
    if !hold.has_old() {
        return;
    }
    match find(hold.store()).await {
        Ok(found) => hold.prune(found.map(|(number, _)| number)).await,
        Err(error) => log::debug!("old holds stay: {error:#}"),
    }
}

/// The last hold that has a journal, and that journal.
async fn find(store: &dyn Store) -> anyhow::Result<Option<(u64, String)>> {
    let numbers = sorted(store).await.context("looking for the journal")?;
    for number in numbers.into_iter().rev() {
        let attempt = || format!("reading the journal of hold {number}");
        let Some(begun) = store.read(number, FILE).await.with_context(attempt)? else { continue };
        let begun = whole(&begun).with_context(attempt)?.map(ToOwned::to_owned);
        let added = entries(store, number).await.with_context(attempt)?;
        match begun {
            Some(begun) => return Ok(Some((number, begun + &added))),
            // Its command had begun nothing: the journal before it counts.
            None if added.is_empty() => {}
            None => bail!("reading the journal of hold {number}: {FILE} was cut, and entries follow it"),
        }
    }
    Ok(None)
}

/// The entries of a journal's first file; none if its writing was cut.
fn whole(text: &str) -> anyhow::Result<Option<&str>> {
    if !text.starts_with(HEAD) && !HEAD.starts_with(text) {
        return Ok(Some(text));
    }
    let Some((head, lines)) = text.split_once('\n') else { return Ok(None) };
    let head: Head = serde_json::from_str(head).with_context(|| format!("the first line of {FILE}"))?;
    if head.form != FORM {
        bail!(
            "{FILE} is of form {}, and {FORM} is known: another version wrote it; end that upgrade with it",
            head.form
        );
    }
    Ok((lines.ends_with('\n') && lines.lines().count() == head.entries).then_some(lines))
}

/// What a hold has added. A last one that was cut is dropped: who wrote it was not told that it is kept, and had begun
/// nothing that it notes.
async fn entries(store: &dyn Store, number: u64) -> anyhow::Result<String> {
    let mut places: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (place, attempt) in store.files(number).await?.iter().filter_map(|name| parsed(name)) {
        places.entry(place).or_default().insert(attempt);
    }
    let mut lines = String::new();
    let mut before = None;
    for (expected, (place, attempts)) in (1..).zip(places) {
        if let Some(cut) = before {
            bail!("{} is damaged, and {} follows it", added(cut, 1), added(place, 1));
        }
        if place != expected {
            bail!("{} is missing, and {} follows it", added(expected, 1), added(place, 1));
        }
        match whole_line(store, number, place, attempts).await? {
            Some(line) => lines = lines + line.trim_end() + "\n",
            None => before = Some(place),
        }
    }
    Ok(lines)
}

/// The last attempt at an entry that was written whole.
async fn whole_line(
    store: &dyn Store,
    number: u64,
    place: usize,
    attempts: BTreeSet<usize>,
) -> anyhow::Result<Option<String>> {
    for attempt in attempts.into_iter().rev() {
        let line = store.read(number, &added(place, attempt)).await?;
        if let Some(line) = line.filter(|line| serde_json::from_str::<IgnoredAny>(line).is_ok()) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod tests;
