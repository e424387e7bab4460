//! Goes the way of a journal: the next step is noted, taken, and noted as done. A
//! step on the way forward that fails turns the way; re-running is the recovery from everything else.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use contract::node::Node;
use uuid::Uuid;

use super::entry::{Direction, Event, Outcome};
use super::journal::Journal;
use super::next::{Next, next, steps};
use super::plan::{Plan, PlannedNode, Step};
use super::{Hypervisor, Nodes, Vm, describe};

/// For so many looks the cluster's API is left alone after it did not answer.
const LOOKS_WHILE_AWAY: u32 = 30;

/// What a run needs.
pub struct Run<'a> {
    /// Where the VMs are.
    pub hypervisor: &'a dyn Hypervisor,
    /// The nodes and their cluster.
    pub nodes: &'a dyn Nodes,
    /// The directory of the journal: the snapshot is put there.
    pub directory: &'a Path,
    /// The OVA, if it is not where the plan says.
    pub ova: Option<PathBuf>,
    /// Told what is being done, a line at a time.
    pub say: &'a dyn Fn(&str),
    /// Fails when somebody else has taken the upgrade over.
    pub still_ours: &'a dyn Fn() -> anyhow::Result<()>,
    /// The pause between two looks.
    pub pace: Duration,
    /// Until when the cluster's API is taken to be away; none to begin with.
    pub away_until: Cell<Option<Instant>>,
    /// Called before and after each entry is written: tests break off there.
    pub noted: &'a dyn Fn(Moment) -> anyhow::Result<()>,
}

/// A moment around an entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The entry is not written yet.
    Before,
    /// The entry is on the disk.
    After,
}

/// Why a step was not done.
#[derive(Debug)]
pub enum Failure {
    /// It failed: on the way forward, everything goes back then.
    Step(anyhow::Error),
    /// This command may not go on; nothing is turned.
    Stop(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Step(error)
    }
}

/// What a step did.
#[derive(Debug)]
pub struct Done {
    /// What it changed or found.
    pub note: String,
    /// The VM that it made.
    pub vm: Option<Uuid>,
}

impl Done {
    pub(super) fn note(note: impl Into<String>) -> Self {
        Self { note: note.into(), vm: None }
    }
}

impl Run<'_> {
    /// Goes on until the way has ended and returns where.
    ///
    /// # Errors
    /// When a step of the way back or of the commit fails, the journal cannot be written, or
    /// somebody else has taken over. The same again goes on from there.
    pub fn go(&self, journal: &mut Journal) -> anyhow::Result<Outcome> {
        let plan = journal.plan().clone();
        loop {
            match next(&plan, journal.entries()) {
                Next::Ended(outcome) => return Ok(outcome),
                Next::End(outcome) => self.note(journal, Event::Ended { outcome })?,
                Next::Take { place, step, again } => {
                    (self.still_ours)()?;
                    self.note(journal, Event::Begun { place })?;
                    let total = steps(&plan, journal.entries(), place.direction).len();
                    let words = describe::title(&plan, step);
                    (self.say)(&format!(
                        "{:>2}/{total} {words}{}",
                        place.index + 1,
                        if again { ", again" } else { "" }
                    ));
                    match self.act(&plan, journal, step, again) {
                        Ok(Done { note, vm }) => {
                            (self.say)(&format!("      {note}"));
                            self.note(journal, Event::Done { place, note, vm })?;
                        }
                        Err(Failure::Step(error)) if place.direction == Direction::Forward => {
                            let reason = format!("{words}: {error:#}");
                            (self.say)(&format!("      failed: {error:#}\nEverything goes back:"));
                            self.note(journal, Event::DirectionChanged { direction: Direction::Back, reason })?;
                        }
                        Err(Failure::Step(error) | Failure::Stop(error)) => return Err(error.context(words)),
                    }
                }
            }
        }
    }

    /// Turns the journal another way.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn turn(&self, journal: &mut Journal, direction: Direction, reason: &str) -> anyhow::Result<()> {
        self.note(journal, Event::DirectionChanged { direction, reason: reason.to_owned() })
    }

    fn note(&self, journal: &mut Journal, event: Event) -> anyhow::Result<()> {
        (self.noted)(Moment::Before)?;
        journal.append(event)?;
        (self.noted)(Moment::After)?;
        self.mirror(journal);
        Ok(())
    }

    /// Lets the cluster keep a copy. While its API is away the file alone counts, and it is not
    /// asked at every entry; the next copy is whole again.
    pub fn mirror(&self, journal: &Journal) {
        if self.away_until.get().is_some_and(|until| Instant::now() < until) || (self.still_ours)().is_err() {
            return;
        }
        self.away_until.set(None);
        if let Err(error) = self.nodes.write_journal(journal.text()) {
            log::debug!("the cluster does not keep the journal now: {error:#}");
            self.away_until.set(Some(Instant::now() + self.pace * LOOKS_WHILE_AWAY));
        }
    }

    /// The same at the end of a command, whether or not the API was away a moment ago.
    pub fn mirror_last(&self, journal: &Journal) {
        self.away_until.set(None);
        self.mirror(journal);
    }

    /// Waits until `look` yields something, at most `limit`. What it says on the way is
    /// said once; an error means "not yet".
    pub(super) fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<T, anyhow::Error>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let mut said = String::new();
        loop {
            (self.still_ours)().map_err(Failure::Stop)?;
            match look() {
                Ok(found) => return Ok(found),
                Err(error) if started.elapsed() >= limit => {
                    return Err(error.context(format!("waited {} s for {what}", limit.as_secs())).into());
                }
                Err(error) => {
                    let now = format!("{error:#}");
                    if now != said {
                        (self.say)(&format!("      waiting for {what}: {now}"));
                        said = now;
                    }
                }
            }
            std::thread::sleep(self.pace);
        }
    }

    /// What a node says now.
    pub(super) fn facts(&self, address: Ipv4Addr) -> anyhow::Result<Node> {
        self.nodes.facts(address)
    }

    /// The new VM of a node, if there is one: by what the journal says of it,
    /// else, when a crash hid that, by its name.
    pub(super) fn new_vm(&self, journal: &Journal, node: &PlannedNode, index: usize) -> anyhow::Result<Option<Vm>> {
        let known = imported(journal, index);
        let vms = self.hypervisor.vms().context("reading the hypervisor's inventory")?;
        Ok(vms.into_iter().find(|vm| match known {
            Some(uuid) => vm.uuid == uuid,
            None => vm.name == node.new_name && vm.uuid != node.old,
        }))
    }

    /// The new VM of a node, which must be there.
    pub(super) fn its_new_vm(&self, journal: &Journal, node: &PlannedNode, index: usize) -> anyhow::Result<Vm> {
        self.new_vm(journal, node, index)?.with_context(|| format!("the VM {} is gone", node.new_name))
    }

    /// The old VM of a node.
    pub(super) fn old_vm(&self, node: &PlannedNode) -> anyhow::Result<Vm> {
        let vms = self.hypervisor.vms().context("reading the hypervisor's inventory")?;
        let old = vms.into_iter().find(|vm| vm.uuid == node.old);
        old.ok_or_else(|| anyhow!("the VM {} ({}) is gone", node.old_name, node.old))
    }
}

/// The VM that the journal says was made for a node.
fn imported(journal: &Journal, node: usize) -> Option<Uuid> {
    let plan: &Plan = journal.plan();
    let step = Step { action: super::plan::Action::Import, node: Some(node) };
    let index = plan.steps.iter().position(|planned| *planned == step)?;
    journal.entries().iter().find_map(|entry| match &entry.event {
        Event::Done { place, vm, .. } if place.direction == Direction::Forward && place.index == index => *vm,
        _ => None,
    })
}
