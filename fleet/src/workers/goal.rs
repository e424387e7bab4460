//! The operator's goal, recorded before anything follows from it.

use anyhow::{Context, ensure};
use contract::minor::Minor;

use super::changes::Changes;
use super::discards::Discards;
use super::pool::{OvaImage, Pool};
use super::reason;
use super::records::PoolRecord;
use super::skew::worker_minor;
use super::worker_record::{State, WorkerRecord};
use crate::engine::Reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    Create(Box<Pool>),
    /// This many further workers.
    Add(usize),
    /// This many workers in all: repeating it changes nothing. If there are more, those that have failed are removed first, then
    /// outdated ones, then the youngest.
    Scale(usize),
    /// One worker less: this one.
    Remove {
        worker: String,
        discards: Discards,
    },
    /// A worker that is no longer a member, because its certificate has expired, joins again with a new token.
    Rejoin {
        worker: String,
    },
    /// Workers with other settings, and with the newest minor version of Kubernetes that their image carries and the cluster
    /// takes. Other settings of creation and replacement stay. A pause stays too.
    Replace {
        /// Their image. `None` keeps the present one.
        image: Option<OvaImage>,
        /// The minor version of the cluster's API servers.
        cluster: Minor,
        /// The minor version that they should run, if given. It is refused if they would run another one.
        kubernetes: Option<Minor>,
        changes: Box<Changes>,
        discards: Discards,
    },
    /// No outdated worker is replaced for now.
    Pause,
    /// Continues, including workers that were paused, blocked, shut down or have failed.
    GoOn,
    /// Continues workers that were interrupted, blocked or shut down. A pause stays, and so do failed workers.
    Continue,
}

impl Goal {
    /// The record once this is the goal.
    pub fn applied(&self, kept: Option<PoolRecord>, now: u64) -> anyhow::Result<PoolRecord> {
        if let Self::Create(pool) = self {
            ensure!(kept.is_none(), "there are workers already; resume to continue with them");
            pool.check()?;
            return Ok(PoolRecord { pool: (**pool).clone(), machines: Vec::new() });
        }
        let mut kept = kept.context("there are no workers yet")?;
        kept.pool.powers_on = matches!(self, Self::GoOn | Self::Continue);
        // The time of workers that have joined begins again with each command.
        for machine in kept.machines.iter_mut().filter(|machine| machine.state == State::Running) {
            machine.since = now;
        }
        match self {
            Self::Create(_) => {}
            Self::Add(count) => kept.pool.count += count,
            Self::Scale(count) => scale(&mut kept, *count, now),
            Self::Remove { worker, discards } => remove(&mut kept, worker, *discards, now)?,
            Self::Rejoin { worker } => rejoin(&mut kept, worker, now)?,
            Self::Replace { image, cluster, kubernetes, changes, discards } => {
                if let Some(OvaImage { image, ova, carries }) = image {
                    kept.pool.template.image.clone_from(image);
                    kept.pool.ova.clone_from(ova);
                    kept.pool.carries.clone_from(carries);
                }
                let minor =
                    worker_minor(&kept.pool.carries, *cluster, *kubernetes).map_err(|why| anyhow::anyhow!("{why}"))?;
                kept.pool.template.kubernetes = minor.to_string();
                changes.apply(&mut kept.pool);
                replaced_with(&mut kept, *discards);
            }
            Self::Pause => kept.pool.rollout.paused = true,
            Self::GoOn => {
                kept.pool.rollout.paused = false;
                give_up(&mut kept, now);
                go_on(&mut kept, now);
            }
            Self::Continue => go_on(&mut kept, now),
        }
        kept.pool.check()?;
        Ok(kept)
    }
}

/// The permissions apply to the workers that are outdated now. They apply neither to one that leaves later, nor to one that the
/// operator has removed.
fn replaced_with(kept: &mut PoolRecord, discards: Discards) {
    for machine in kept.machines.iter_mut().filter(|machine| !is_asked(machine)) {
        let is_outdated = kept.pool.template.outdates(&machine.template);
        machine.drain = if is_outdated { discards } else { Discards::default() };
    }
}

/// Whether it leaves because the operator has removed it.
fn is_asked(machine: &WorkerRecord) -> bool {
    machine.state == State::Deleting && machine.reason.as_ref().is_some_and(|why| why.code == reason::ASKED)
}

fn remove(kept: &mut PoolRecord, name: &str, discards: Discards, now: u64) -> anyhow::Result<()> {
    let there = kept.machines.iter().filter(|machine| machine.counts()).count();
    let machine = named(&mut kept.machines, name)?;
    machine.drain = discards;
    // A second request changes nothing.
    if is_asked(machine) {
        return Ok(());
    }
    // A leaving worker does not count, or another one replaces it: it is replaced. A worker that is lost or did not join is
    // created again, unless the operator wants one less before that. Afterwards it would be one of the others.
    let is_made_anew = |why: &Reason| [reason::GIVEN_UP, reason::VM_GONE].contains(&why.code.as_str());
    let is_missing = machine.reason.as_ref().is_some_and(is_made_anew) && there < kept.pool.count;
    if machine.state != State::Deleting || is_missing {
        kept.pool.count = kept.pool.count.saturating_sub(1);
    }
    machine.leave(now, Reason::new(reason::ASKED, "the operator wants it to go"));
    Ok(())
}

/// If fewer are wanted than before, failed ones are removed first: they serve nothing.
fn scale(kept: &mut PoolRecord, count: usize, now: u64) {
    let there = kept.machines.iter().filter(|machine| machine.counts()).count();
    let surplus = if count < kept.pool.count { there.saturating_sub(count) } else { 0 };
    let failed = kept.machines.iter_mut().rev().filter(|machine| machine.state == State::Failed);
    for machine in failed.take(surplus) {
        machine.leave(now, Reason::new(reason::SURPLUS, "there are more workers than are wanted"));
    }
    kept.pool.count = count;
}

/// Gives a new token to a member, or to a former member that failed to join again.
fn rejoin(kept: &mut PoolRecord, name: &str, now: u64) -> anyhow::Result<()> {
    let machine = named(&mut kept.machines, name)?;
    let may = match machine.state {
        State::Running | State::Rejoining => true,
        State::Failed => machine.has_joined(),
        State::Provisioning | State::Joining | State::Deleting => false,
    };
    ensure!(may, "{name} comes or goes, or has never joined: only a worker that has joined can join again");
    machine.enter(State::Rejoining, now, None);
    Ok(())
}

fn named<'k>(machines: &'k mut [WorkerRecord], name: &str) -> anyhow::Result<&'k mut WorkerRecord> {
    let names: Vec<String> = machines.iter().map(|machine| machine.name.clone()).collect();
    let found = machines.iter_mut().find(|machine| machine.name == name);
    found.with_context(|| format!("there is no worker {name}; there are {}", names.join(", ")))
}

/// A worker that did not join is created again. One that had joined once gets another token: it was not removed.
fn give_up(kept: &mut PoolRecord, now: u64) {
    for machine in kept.machines.iter_mut().filter(|machine| machine.state == State::Failed) {
        if machine.has_joined() {
            machine.enter(State::Rejoining, now, None);
            continue;
        }
        let why = machine.reason.as_ref().map_or_else(String::new, |why| format!(": {}", why.words));
        machine.leave(now, Reason::new(reason::GIVEN_UP, format!("it is created again{why}")));
    }
}

/// Workers without time to join are created again, unless they have joined meanwhile or had joined before. The latter get another
/// token. Blocked workers get their time again.
fn go_on(kept: &mut PoolRecord, now: u64) {
    let pool = &kept.pool;
    for machine in &mut kept.machines {
        match machine.state {
            State::Joining if !machine.has_time(pool, now) && machine.has_joined() => machine.state = State::Rejoining,
            State::Joining if !machine.has_time(pool, now) => machine.state = State::Provisioning,
            State::Joining | State::Deleting => machine.since = now,
            State::Provisioning | State::Running | State::Rejoining | State::Failed => {}
        }
    }
}
