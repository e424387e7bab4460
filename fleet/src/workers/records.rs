//! The journals of a pool: what is wanted, and what was begun for each worker. They are next to the leases, outside the cluster.
//!
//! A lease begins with a copy of the former lease's record, so that files of a command whose lease was taken over are not read.
//! It has a file for each worker, and last that of the pool, which names them. Then each change is a separate file, of one worker
//! or of the pool and what that changes of workers. The last complete one counts.
//!
//! An interrupted write damages no earlier file: its writer got an error, and has begun nothing. Later damage, or an unknown
//! format, concerns one worker: the others continue.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::pool::Pool;
use super::reason;
use super::worker_record::{State, WorkerRecord, numbered};
use crate::engine::Reason;
use crate::journals::workers::{self, POOL, change, changed, journal, machine_of};
use crate::journals::{beginning, whole};
use crate::lease::{AllocatedIds, Lease, Store, sorted};

/// One line, or one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "record")]
pub enum Record {
    Pool {
        pool: Box<Pool>,
    },
    /// The record of a worker.
    Machine {
        machine: Box<WorkerRecord>,
    },
    /// A worker whose journal is another file.
    Known(Known),
    /// Nothing of a machine is left.
    Gone {
        name: String,
    },
}

/// The pool's knowledge of a worker. It reserves the worker's VM and address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    name: String,
    #[serde(rename = "stamp")]
    id: Uuid,
    address: Option<Ipv4Addr>,
    #[serde(rename = "biosUUID")]
    bios_uuid: Option<Uuid>,
}

impl Known {
    fn of(machine: &WorkerRecord) -> Self {
        let WorkerRecord { name, id, address, bios_uuid: vm, .. } = machine;
        Self { name: name.clone(), id: *id, address: *address, bios_uuid: *vm }
    }

    /// The worker whose journal is lost: nothing is done for it until the operator continues.
    fn without_journal(self, pool: &Pool) -> WorkerRecord {
        let Self { name, id, address, bios_uuid: vm } = self;
        let words = "its journal is damaged: what it was made like is not known. Continuing creates it again";
        let reason = Some(Reason::new(reason::JOURNAL, words));
        WorkerRecord { name, bios_uuid: vm, state: State::Failed, reason, ..WorkerRecord::new(pool, id, address, 0) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    pub pool: Pool,
    pub machines: Vec<WorkerRecord>,
}

impl PoolRecord {
    pub fn machine(&self, name: &str) -> Option<&WorkerRecord> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Whether a worker comes or goes.
    pub fn moves(&self) -> bool {
        self.machines.iter().any(|machine| machine.state.moves())
    }

    /// Applies a change that was read. If a worker's change is damaged, only its identity is left.
    fn change(&mut self, change: Change) -> anyhow::Result<()> {
        let record = match change {
            Change::Noted(records) => {
                records.into_iter().for_each(|record| self.note(record));
                return Ok(());
            }
            Change::Damaged { file, machine, known } => {
                let known = known.or_else(|| self.machine(&machine).map(Known::of));
                let known = known.with_context(|| {
                    format!("{file} is damaged, and nothing else says which VM and which address are {machine}'s")
                })?;
                Record::Machine { machine: Box::new(known.without_journal(&self.pool)) }
            }
        };
        self.note(record);
        Ok(())
    }

    fn note(&mut self, record: Record) {
        let place = |name: &str, machines: &[WorkerRecord]| machines.iter().position(|machine| machine.name == name);
        match record {
            Record::Pool { pool } => self.pool = *pool,
            // Its journal has all of it.
            Record::Known(_) => {}
            Record::Gone { name } => self.machines.retain(|machine| machine.name != name),
            Record::Machine { machine } => match place(&machine.name, &self.machines) {
                Some(at) => self.machines[at] = *machine,
                None => {
                    self.machines.push(*machine);
                    self.machines.sort_by_key(WorkerRecord::number);
                }
            },
        }
    }
}

/// The open journals of a pool.
pub struct Records<'a> {
    hold: &'a Lease<'a>,
    kept: PoolRecord,
    /// How many files this lease has tried to write.
    written: usize,
}

impl<'a> Records<'a> {
    /// Begins with the present goal, all of it at once.
    ///
    /// # Errors
    /// If it cannot be written. Then the record of the lease before counts.
    pub async fn begin(hold: &'a Lease<'a>, kept: PoolRecord) -> anyhow::Result<Self> {
        let mut lines = line(&Record::Pool { pool: Box::new(kept.pool.clone()) })?;
        for machine in &kept.machines {
            let text = beginning(&line(&Record::Machine { machine: Box::new(machine.clone()) })?)?;
            let file = journal(&machine.name);
            hold.store().write(hold.number(), &file, &text).await.with_context(|| format!("writing {file}"))?;
            lines += &line(&Record::Known(Known::of(machine)))?;
        }
        hold.confirm().await?;
        hold.store().write(hold.number(), POOL, &beginning(&lines)?).await.context("writing the workers' journals")?;
        Ok(Self { hold, kept, written: 0 })
    }

    pub fn kept(&self) -> &PoolRecord {
        &self.kept
    }

    /// Saves the pool: it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written, or another command has taken over. Nothing may follow from it then. Readers of the journals may
    /// still find it.
    pub async fn save_pool(&mut self, pool: Pool) -> anyhow::Result<()> {
        self.save("pool", Record::Pool { pool: Box::new(pool) }).await
    }

    /// Saves what is begun for a worker.
    pub async fn save_machine(&mut self, machine: WorkerRecord) -> anyhow::Result<()> {
        let name = machine.name.clone();
        self.save(&name, Record::Machine { machine: Box::new(machine) }).await
    }

    /// Saves the pool and its changes of workers, all or nothing: a worker that leaves and the new count belong together.
    pub(super) async fn save_all(&mut self, pool: Pool, machines: Vec<WorkerRecord>) -> anyhow::Result<()> {
        let machines = machines.into_iter().map(|machine| Record::Machine { machine: Box::new(machine) });
        self.write("pool", [Record::Pool { pool: Box::new(pool) }].into_iter().chain(machines).collect()).await
    }

    /// Records that nothing of a worker is left.
    pub async fn forget(&mut self, name: &str) -> anyhow::Result<()> {
        self.save(name, Record::Gone { name: name.to_owned() }).await
    }

    /// Draws the identity of a further worker, before anything follows from it.
    pub(super) async fn draw(&self, name: &str, address: Option<Ipv4Addr>) -> anyhow::Result<AllocatedIds> {
        self.hold.confirm().await?;
        self.hold.store().draw(self.hold.number(), name, address).await
    }

    async fn save(&mut self, of: &str, record: Record) -> anyhow::Result<()> {
        self.write(of, vec![record]).await
    }

    async fn write(&mut self, of: &str, records: Vec<Record>) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        // A write that failed may still land: the next attempt is a separate file, and counts more.
        self.written += 1;
        let file = changed(self.written, of);
        let text = beginning(&records.iter().map(line).collect::<anyhow::Result<String>>()?)?;
        self.hold.store().write(self.hold.number(), &file, &text).await.context("writing a worker's journal")?;
        records.into_iter().for_each(|record| self.kept.note(record));
        Ok(())
    }
}

/// The records of a file of the journals, in order, as it is given to a store.
pub fn noted(text: &str) -> anyhow::Result<Vec<Record>> {
    let lines = whole(text)?.context("it was cut")?;
    lines.lines().map(|line| record(line).context("understanding a worker's journal")).collect()
}

fn line(record: &Record) -> anyhow::Result<String> {
    Ok(serde_json::to_string(record)? + "\n")
}

/// The record of the store's pool. `None` if there is no pool.
pub async fn read(store: &dyn Store) -> anyhow::Result<Option<PoolRecord>> {
    let mut made = 0;
    for number in sorted(store).await.context("looking for the workers' journals")?.into_iter().rev() {
        let kept = of_hold(store, number).await;
        let kept = kept.with_context(|| format!("reading the workers' journals of lease {number}"))?;
        if let Some(mut kept) = kept {
            kept.pool.last_index = kept.pool.last_index.max(made);
            return Ok(Some(kept));
        }
        made = made.max(put_aside(store, number).await?);
    }
    Ok(None)
}

/// The highest number of a worker whose journal the operator has put aside, from the names of the files, not their contents. A
/// client with a certificate by that name would be the next worker of that number.
async fn put_aside(store: &dyn Store, number: u64) -> anyhow::Result<u64> {
    let files = store.files(number).await.with_context(|| format!("listing the files of lease {number}"))?;
    let names = files.iter().filter_map(|file| machine_of(workers::put_aside(file)?));
    Ok(names.filter_map(numbered).max().unwrap_or_default())
}

/// The record of a lease. `None` if its command had begun nothing.
async fn of_hold(store: &dyn Store, number: u64) -> anyhow::Result<Option<PoolRecord>> {
    let changes = changes(store, number).await?;
    let Some(mut kept) = begun(store, number, &changes).await? else {
        if changes.is_empty() {
            return Ok(None);
        }
        bail!("{POOL} is missing or cut, and changes follow it");
    };
    let changes: Vec<Change> = changes.into_values().collect();
    // A damaged change does not count if a later change has the whole worker, or says that it is gone.
    let is_past = |at: usize, change: &Change| match change {
        Change::Damaged { machine, .. } => {
            changes[at + 1..].iter().any(|later| later.is_of(machine) || later.ends(machine))
        }
        Change::Noted(_) => false,
    };
    let past: Vec<bool> = changes.iter().enumerate().map(|(at, change)| is_past(at, change)).collect();
    for (change, _) in changes.into_iter().zip(past).filter(|(_, past)| !past) {
        kept.change(change)?;
    }
    Ok(Some(kept))
}

/// The changes of a lease, in order.
async fn changes(store: &dyn Store, number: u64) -> anyhow::Result<BTreeMap<usize, Change>> {
    let mut changes = BTreeMap::new();
    for file in store.files(number).await? {
        let Some((place, of)) = change(&file) else { continue };
        if let Some(text) = store.read(number, &file).await?
            && let Some(change) = Change::read(&file, of, &text)?
        {
            changes.insert(place, change);
        }
    }
    Ok(changes)
}

enum Change {
    Noted(Vec<Record>),
    /// A record of this worker that is not understood. It was saved, and something may have followed from it.
    Damaged {
        file: String,
        machine: String,
        known: Option<Known>,
    },
}

impl Change {
    /// Reads a change of a worker, or of the pool. `None` if its write was interrupted: then it recorded nothing.
    fn read(file: &str, of: &str, text: &str) -> anyhow::Result<Option<Self>> {
        let Some(lines) = whole(text).with_context(|| format!("reading {file}"))? else { return Ok(None) };
        let why = match lines.lines().map(record).collect::<anyhow::Result<Vec<_>>>() {
            Ok(records) => return Ok(Some(Self::Noted(records))),
            Err(why) => why,
        };
        if of == "pool" {
            bail!("{file} is damaged, or of another version: {why}");
        }
        log::warn!("{file} is damaged, or of another version: {why}");
        let value: serde_json::Value = serde_json::from_str(lines).unwrap_or_default();
        let known = serde_json::from_value(value["machine"].clone()).ok().filter(|known: &Known| known.name == of);
        Ok(Some(Self::Damaged { file: file.to_owned(), machine: of.to_owned(), known }))
    }

    fn is_of(&self, name: &str) -> bool {
        self.says(|record| matches!(record, Record::Machine { machine } if machine.name == name))
    }

    /// Whether it says that nothing of a worker is left.
    fn ends(&self, machine: &str) -> bool {
        self.says(|record| matches!(record, Record::Gone { name } if name == machine))
    }

    fn says(&self, what: impl Fn(&Record) -> bool) -> bool {
        matches!(self, Self::Noted(records) if records.iter().any(what))
    }
}

/// The record that a lease began with. A damaged journal concerns one worker only.
async fn begun(
    store: &dyn Store,
    number: u64,
    changes: &BTreeMap<usize, Change>,
) -> anyhow::Result<Option<PoolRecord>> {
    let Some(text) = store.read(number, POOL).await? else { return Ok(None) };
    let Some(lines) = whole(&text)? else { return Ok(None) };
    let mut lines =
        lines.lines().map(|line| serde_json::from_str(line).with_context(|| format!("understanding {POOL}")));
    let Some(Record::Pool { pool }) = lines.next().transpose()? else { bail!("{POOL} does not begin with the pool") };
    let mut kept = PoolRecord { pool: *pool, machines: Vec::new() };
    for line in lines {
        let Record::Known(known) = line? else { bail!("{POOL} has something else than machines' names") };
        if changes.values().any(|change| change.is_of(&known.name)) {
            continue;
        }
        let machine = match store.read(number, &journal(&known.name)).await?.as_deref().map(machine) {
            Some(Ok(machine)) if machine.name == known.name => machine,
            damaged => {
                let why = damaged.and_then(Result::err).map_or_else(String::new, |error| format!(": {error:#}"));
                log::warn!("{} of lease {number} is damaged{why}", journal(&known.name));
                known.without_journal(&kept.pool)
            }
        };
        kept.note(Record::Machine { machine: Box::new(machine) });
    }
    Ok(Some(kept))
}

fn record(line: &str) -> anyhow::Result<Record> {
    let record = serde_json::from_str(line)?;
    let is_part = matches!(&record, Record::Machine { machine } if !machine.is_whole());
    ensure!(!is_part, "it does not say whose it is, or what the worker is made like");
    Ok(record)
}

fn machine(text: &str) -> anyhow::Result<WorkerRecord> {
    match record(whole(text)?.context("it was cut")?)? {
        Record::Machine { machine } => Ok(*machine),
        _ => bail!("it is no machine's"),
    }
}
