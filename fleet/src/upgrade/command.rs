//! The verbs of the operator: each takes the cluster's lock, opens the journal, goes
//! the way, and gives the lock back.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use uuid::Uuid;

use super::entry::{self, Direction, Entry, Event, Outcome};
use super::journal::Journal;
use super::lock::{self, Keeper};
use super::next::{Next, next, steps};
use super::{Hypervisor, Inventory, Nodes, Options, Plan, Run, Target, describe, plan};
use crate::files;

/// So many looks at a node fit between two renewals of the lock.
const LOOKS_PER_RENEWAL: u32 = 10;

/// One cluster on one hypervisor, and the directory of its journal.
pub struct Command<'a> {
    /// Where the VMs are.
    pub hypervisor: &'a dyn Hypervisor,
    /// The nodes and their cluster.
    pub nodes: &'a dyn Nodes,
    /// Where the journal is kept on this machine.
    pub directory: &'a Path,
    /// Told what is being done, a line at a time.
    pub say: &'a dyn Fn(&str),
    /// The pause between two looks at a node: a second, but for tests.
    pub pace: Duration,
}

/// Where an upgrade stands.
#[derive(Clone, Debug, Serialize)]
pub struct UpgradeStatus {
    /// Its plan.
    pub id: Uuid,
    /// The way that it goes.
    pub direction: Direction,
    /// Why it turned, if it did.
    pub reason: Option<String>,
    /// Its end, if it is reached.
    pub outcome: Option<Outcome>,
    /// How many steps of the way are done.
    pub done: usize,
    /// How many there are.
    pub total: usize,
    /// The next step, in words.
    pub next: Option<String>,
    /// The cluster's lock: who holds it now; unknown while its API is away.
    pub locked_by: Option<String>,
    /// The journal.
    pub entries: Vec<Entry>,
}

impl Command<'_> {
    /// Plans an upgrade; changes nothing.
    ///
    /// # Errors
    /// Why there is no plan: [`super::Refusals`] if it was judged.
    pub fn plan(&self, ova: &Path, options: &Options) -> anyhow::Result<Plan> {
        let target = Target::read(ova)?;
        let inventory = Inventory::take(self.hypervisor, self.nodes)?;
        Ok(plan(&inventory, &target, options, Uuid::new_v4())?)
    }

    /// Plans an upgrade and carries it out.
    ///
    /// # Errors
    /// As [`Command::plan`]; or when it was interrupted. That everything went back is no error here.
    pub fn apply(&self, ova: &Path, options: &Options) -> anyhow::Result<UpgradeStatus> {
        let plan = self.plan(ova, options)?;
        if let Some(open) = Journal::open(self.directory)?
            && let (_, None | Some(Outcome::Upgraded)) = entry::standing(open.entries())
            && open.plan().cluster == plan.cluster
        {
            let id = open.plan().id;
            bail!("the upgrade {id} has not ended or is not committed; `kaas upgrade status` says how far it is");
        }
        self.locked(plan.id, true, || Journal::begin(self.directory, plan.clone()), None, |_, _| Ok(()))
    }

    /// Continues an upgrade that was interrupted, here or on another machine.
    ///
    /// # Errors
    /// When there is none, somebody else is at work on it, or it is interrupted again.
    pub fn resume(&self, ova: Option<PathBuf>) -> anyhow::Result<UpgradeStatus> {
        self.go_on(ova, |_, _| Ok(()))
    }

    /// Gives every node its old VM back, with its disk as it is now.
    ///
    /// # Errors
    /// When there is no upgrade, it is committed, somebody else is at work on it, or it is interrupted.
    pub fn rollback(&self) -> anyhow::Result<UpgradeStatus> {
        self.go_on(None, |run, journal| match entry::standing(journal.entries()) {
            (Direction::Forward, _) => run.turn(journal, Direction::Back, "asked for by the operator"),
            (Direction::Back, _) => Ok(()),
            (Direction::Commit, _) => {
                bail!("it is being committed or is: there is no way back but restoring the snapshot")
            }
        })
    }

    /// Makes an upgrade final and removes the old VMs.
    ///
    /// # Errors
    /// When there is no upgrade that has reached its end, or it is interrupted.
    pub fn commit(&self) -> anyhow::Result<UpgradeStatus> {
        self.go_on(None, |run, journal| match entry::standing(journal.entries()) {
            (Direction::Forward, Some(Outcome::Upgraded)) => {
                run.turn(journal, Direction::Commit, "asked for by the operator")
            }
            (Direction::Commit, _) => Ok(()),
            (Direction::Forward, _) => bail!("it is not at its end; `kaas upgrade resume` or `rollback`"),
            (Direction::Back, _) => bail!("it went back: there is nothing to commit"),
        })
    }

    /// Where the upgrade stands; changes nothing.
    ///
    /// # Errors
    /// When there is none, neither here nor in the cluster.
    pub fn status(&self) -> anyhow::Result<UpgradeStatus> {
        let here = fs::read_to_string(Journal::path(self.directory)).ok();
        // A command may be writing its next line just now.
        let whole = |text: String| text.rfind('\n').map_or(String::new(), |end| text[..=end].to_owned());
        let text = match (here.map(whole), self.nodes.journal()) {
            (Some(here), Ok(Some(there))) => match is_overtaken(&here, &there)? {
                true => there,
                false => here,
            },
            (Some(here), _) => here,
            (None, there) => there?.context("there is no upgrade, neither here nor in the cluster")?,
        };
        self.state(&entry::parse(&text)?)
    }

    fn state(&self, entries: &[Entry]) -> anyhow::Result<UpgradeStatus> {
        let plan = entry::plan_of(entries).context("a journal without a plan")?;
        let (direction, outcome) = entry::standing(entries);
        let total = steps(plan, entries, direction).len();
        let (done, next) = match next(plan, entries) {
            Next::Take { place, step, .. } => (place.index, Some(describe::title(plan, step))),
            Next::End(_) | Next::Ended(_) => (total, None),
        };
        let reason = entries.iter().rev().find_map(|entry| match &entry.event {
            Event::DirectionChanged { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        let lease = self.nodes.lease().ok().flatten();
        let locked_by =
            lease.filter(|lease| lease.is_held(std::time::SystemTime::now())).and_then(|lease| lease.holder);
        Ok(UpgradeStatus {
            id: plan.id,
            direction,
            reason,
            outcome,
            done,
            total,
            next,
            locked_by,
            entries: entries.to_vec(),
        })
    }

    /// The journal of this machine, or else the cluster's copy, or whichever another machine
    /// has continued.
    fn obtain(&self) -> anyhow::Result<Journal> {
        let here = Journal::open(self.directory)?;
        if let Some(here) = &here {
            self.is_of_this_cluster(here.plan())?;
        }
        let there = self.nodes.journal();
        match (here, there) {
            (Some(here), Ok(Some(there))) if is_overtaken(here.text(), &there)? => {
                drop(here);
                (self.say)("another machine has continued this upgrade; its journal is taken over");
                Journal::place(self.directory, &there)
            }
            (Some(here), Ok(_)) => Ok(here),
            (Some(here), Err(error)) => {
                (self.say)(&format!("the cluster's copy of the journal cannot be read now: {error:#}"));
                Ok(here)
            }
            (None, Ok(Some(there))) => {
                (self.say)("the journal is taken over from the cluster");
                Journal::place(self.directory, &there)
            }
            (None, Ok(None)) => {
                bail!("there is no upgrade, neither here nor in the cluster; `kaas upgrade apply` begins one")
            }
            (None, Err(error)) => Err(error.context("there is no journal here, and the cluster's copy cannot be read")),
        }
    }

    /// Refuses a journal of another cluster than the nodes': with a kubeconfig whose context has changed, the steps of
    /// one cluster's upgrade would be taken on the other. While the API is away nobody can say.
    fn is_of_this_cluster(&self, plan: &Plan) -> anyhow::Result<()> {
        match self.nodes.cluster() {
            Ok(cluster) if cluster != plan.cluster => bail!(
                "the journal in {} is of cluster {}, and the kubeconfig leads to cluster {cluster}: give that \
                 journal's kubeconfig, or another directory with --journal",
                self.directory.display(),
                plan.cluster
            ),
            _ => Ok(()),
        }
    }

    /// Goes on with the upgrade that there is, under its lock, after `turn`. The journal is
    /// obtained again then: until it was ours, another machine may have gone on.
    fn go_on(
        &self,
        ova: Option<PathBuf>,
        turn: impl FnOnce(&Run<'_>, &mut Journal) -> anyhow::Result<()>,
    ) -> anyhow::Result<UpgradeStatus> {
        let id = self.obtain()?.plan().id;
        self.locked(id, false, || self.obtain(), ova, turn)
    }

    /// Does it all under the cluster's lock. While the cluster's API is away the
    /// lock is not needed to go on: whoever has the journal here had it.
    fn locked(
        &self,
        id: Uuid,
        new: bool,
        open: impl FnOnce() -> anyhow::Result<Journal>,
        ova: Option<PathBuf>,
        turn: impl FnOnce(&Run<'_>, &mut Journal) -> anyhow::Result<()>,
    ) -> anyhow::Result<UpgradeStatus> {
        let identity = format!("{id}.{}", self.seat()?);
        let reachable = self.nodes.lease();
        match (reachable, new) {
            (Ok(_), _) => lock::take(self.nodes, &identity, self.renewal() * 2)?,
            (Err(error), true) => return Err(error.context("looking at the cluster's lock for upgrades")),
            (Err(error), false) => {
                (self.say)(&format!("the cluster's lock cannot be renewed now: {error:#}"));
            }
        }
        self.keeping(identity, |still_ours| {
            let mut journal = open()?;
            let run = Run {
                hypervisor: self.hypervisor,
                nodes: self.nodes,
                directory: self.directory,
                ova,
                say: self.say,
                still_ours,
                pace: self.pace,
                away_until: Cell::new(None),
                noted: &|_| Ok(()),
            };
            run.mirror(&journal);
            turn(&run, &mut journal)?;
            let gone = run.go(&mut journal);
            run.mirror_last(&journal);
            gone?;
            self.state(journal.entries())
        })
    }

    /// Renews the lock, which `identity` has taken, while `act` is at work, and gives it back. `act` can ask
    /// whether it is still ours.
    pub(super) fn keeping<T>(
        &self,
        identity: String,
        act: impl FnOnce(&dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let keeper = Keeper::start(scope, self.nodes, identity, self.renewal())?;
            let acted = act(&|| keeper.check());
            keeper.end();
            acted
        })
    }

    /// The pause between two renewals of the lock.
    pub(super) fn renewal(&self) -> Duration {
        self.pace * LOOKS_PER_RENEWAL
    }

    /// The name of this machine in the lock: made once for a directory.
    pub(super) fn seat(&self) -> anyhow::Result<String> {
        seat(self.directory)
    }
}

/// Whether another machine has gone on, or begun anew, since the journal here was written. The
/// copy is never ahead of the machine that writes it: while the API is away it stays behind.
fn is_overtaken(here: &str, there: &str) -> anyhow::Result<bool> {
    if here.starts_with(there) {
        return Ok(false);
    }
    let begun = |text: &str| -> anyhow::Result<(Option<Uuid>, Option<u64>)> {
        let entries = entry::parse(text)?;
        Ok((entry::plan_of(&entries).map(|plan| plan.id), entries.first().map(|entry| entry.at)))
    };
    let (here, there) = (begun(here)?, begun(there).context("reading the cluster's copy of the journal")?);
    Ok(here.0 == there.0 || there.1 > here.1)
}

fn seat(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join("seat");
    if let Ok(seat) = fs::read_to_string(&path) {
        return Ok(seat.trim().to_owned());
    }
    let seat = Uuid::new_v4().simple().to_string()[..8].to_owned();
    files::write(&path, &seat)?;
    Ok(seat)
}
