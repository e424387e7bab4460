//! The journals of a pool: what is wanted, and of each machine what was begun. Kept where holds are, outside the
//! cluster. A hold begins with a copy of what the one before it had, so that a command that was overtaken writes where
//! nobody reads any more; then each change is a file of its own, of one machine or of the pool, and the last whole one
//! counts. A write that is cut damages nothing that was kept before it: who wrote it was told so, and has begun nothing.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::pool::Pool;
use crate::authority::{Hold, Store, sorted};
use crate::upgrade::{beginning, whole};

/// What a hold begins with. Written before anything else.
const FILE: &str = "workers.jsonl";

/// One line, or one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "record")]
enum Record {
    /// What is wanted.
    Pool { pool: Box<Pool> },
    /// What was begun for a machine.
    Machine { machine: Box<Machine> },
    /// Nothing of a machine is left.
    Gone { name: String },
}

/// What is kept of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What is wanted.
    pub pool: Pool,
    /// Its machines by number.
    pub machines: Vec<Machine>,
}

impl Kept {
    /// One of its machines.
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Whether a worker comes or goes.
    pub fn moves(&self) -> bool {
        self.machines.iter().any(|machine| machine.state.moves())
    }

    fn lines(&self) -> anyhow::Result<String> {
        let pool = Record::Pool { pool: Box::new(self.pool.clone()) };
        let machines = self.machines.iter().map(|machine| Record::Machine { machine: Box::new(machine.clone()) });
        let records = [pool].into_iter().chain(machines);
        records.map(|record| Ok(serde_json::to_string(&record)? + "\n")).collect()
    }

    fn note(&mut self, record: Record) {
        let place = |name: &str, machines: &[Machine]| machines.iter().position(|machine| machine.name == name);
        match record {
            Record::Pool { pool } => self.pool = *pool,
            Record::Gone { name } => self.machines.retain(|machine| machine.name != name),
            Record::Machine { machine } => match place(&machine.name, &self.machines) {
                Some(at) => self.machines[at] = *machine,
                None => {
                    self.machines.push(*machine);
                    self.machines.sort_by_key(Machine::number);
                }
            },
        }
    }
}

/// The open journals of a pool.
pub struct Records<'a> {
    hold: &'a Hold<'a>,
    kept: Kept,
    /// How many files this hold has tried to write.
    written: usize,
}

impl<'a> Records<'a> {
    /// Begins with what is wanted now, all of it at once.
    ///
    /// # Errors
    /// When it cannot be written: what the hold before had counts then.
    pub async fn begin(hold: &'a Hold<'a>, kept: Kept) -> anyhow::Result<Self> {
        hold.confirm().await?;
        let text = beginning(&kept.lines()?)?;
        hold.store().write(hold.number(), FILE, &text).await.context("writing the workers' journals")?;
        Ok(Self { hold, kept, written: 0 })
    }

    /// What is kept.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Notes what is wanted: it is kept when this returns.
    ///
    /// # Errors
    /// When it cannot be written, or another command has taken over. Nothing may follow from it then; whoever reads the
    /// journals may find it.
    pub async fn save_pool(&mut self, pool: Pool) -> anyhow::Result<()> {
        self.save("pool", Record::Pool { pool: Box::new(pool) }).await
    }

    /// Notes what is begun for a machine.
    ///
    /// # Errors
    /// As [`Records::save_pool`].
    pub async fn save_machine(&mut self, machine: Machine) -> anyhow::Result<()> {
        let name = machine.name.clone();
        self.save(&name, Record::Machine { machine: Box::new(machine) }).await
    }

    /// Notes that nothing of a machine is left.
    ///
    /// # Errors
    /// As [`Records::save_pool`].
    pub async fn forget(&mut self, name: &str) -> anyhow::Result<()> {
        self.save(name, Record::Gone { name: name.to_owned() }).await
    }

    async fn save(&mut self, of: &str, record: Record) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        // A write that failed may still land: the next attempt is a file of its own, and counts more.
        self.written += 1;
        let file = format!("worker-{:06}-{of}.json", self.written);
        let text = serde_json::to_string(&record)? + "\n";
        self.hold.store().write(self.hold.number(), &file, &text).await.context("writing a worker's journal")?;
        self.kept.note(record);
        Ok(())
    }
}

/// What is kept of the store's pool; none if there is none.
///
/// # Errors
/// When the store cannot be read, or what it has is damaged.
pub async fn read(store: &dyn Store) -> anyhow::Result<Option<Kept>> {
    Ok(find(store).await?.map(|(_, kept)| kept))
}

/// Lets go of old holds, but of none from the one on whose journals count.
pub async fn prune(hold: &Hold<'_>) {
    hold.prune_to(async { Ok(find(hold.store()).await?.map(|(number, _)| number)) }).await;
}

async fn find(store: &dyn Store) -> anyhow::Result<Option<(u64, Kept)>> {
    for number in sorted(store).await.context("looking for the workers' journals")?.into_iter().rev() {
        let kept = of_hold(store, number).await;
        if let Some(kept) = kept.with_context(|| format!("reading the workers' journals of hold {number}"))? {
            return Ok(Some((number, kept)));
        }
    }
    Ok(None)
}

/// What a hold has; none if its command had begun nothing.
async fn of_hold(store: &dyn Store, number: u64) -> anyhow::Result<Option<Kept>> {
    let begun = store.read(number, FILE).await?;
    let mut changes = BTreeMap::new();
    for name in store.files(number).await? {
        let place = name.strip_prefix("worker-").and_then(|rest| rest.split_once('-'));
        let Some(place) = place.and_then(|(place, _)| place.parse::<usize>().ok()) else { continue };
        // One that was cut noted nothing.
        if let Some(change) = store.read(number, &name).await?
            && let Ok(record) = serde_json::from_str::<Record>(&change)
        {
            changes.insert(place, record);
        }
    }
    let Some(begun) = begun.as_deref().map(whole).transpose()?.flatten() else {
        if changes.is_empty() {
            return Ok(None);
        }
        bail!("{FILE} is missing or cut, and changes follow it");
    };
    let mut kept: Option<Kept> = None;
    for line in begun.lines() {
        match (serde_json::from_str(line).with_context(|| format!("understanding {FILE}"))?, &mut kept) {
            (Record::Pool { pool }, None) => kept = Some(Kept { pool: *pool, machines: Vec::new() }),
            (_, None) => bail!("{FILE} does not begin with the pool"),
            (record, Some(kept)) => kept.note(record),
        }
    }
    let mut kept = kept.with_context(|| format!("{FILE} is empty"))?;
    for record in changes.into_values() {
        kept.note(record);
    }
    Ok(Some(kept))
}
