//! Copies of data disks, for operators who want a rollback without this program. Made while a disk is no VM's, removed
//! by the commit. A copy is never attached from here: a node refuses an old one.

use super::{StepOutcome, place};
use crate::engine::{HYPERVISOR_TRANSIENT, Unconfirmed, guarded};
use crate::hypervisor::{DiskRef, Error, ErrorKind, Vm};
use crate::nodes::told;
use crate::upgrade::context::StepContext;
use crate::upgrade::copies::{kept, mark};
use crate::upgrade::entry::Event;
use crate::upgrade::journal::Journal;
use crate::upgrade::kept_copy::KeptCopy;
use crate::upgrade::plan::{Action, Plan, PlannedNode, Step, base_of};
use crate::upgrade::reason::DISK_HELD;
use crate::upgrade::step_error::StepError;

impl StepContext<'_> {
    /// The path of the copy that a step makes. `None` for every other step. It is noted before anything is done.
    pub(in crate::upgrade) fn copy_to_make(&self, plan: &Plan, journal: &Journal<'_>, step: Step) -> Option<String> {
        let index = step.node.filter(|_| step.action == Action::Copy)?;
        Some(self.hypervisor.copy_path(&place(journal, index), &mark(&plan.nodes[index])))
    }

    /// Copies the disk, which is at `place`. An incomplete copy, or one whose end was not confirmed, is made again.
    pub(super) async fn copy(&self, node: &PlannedNode, place: &DiskRef) -> Result<StepOutcome, StepError> {
        // Another file under its UUID is a copy.
        let holds = |vm: &&Vm| vm.disks.iter().any(|disk| disk.reference == *place);
        if let Some(holder) = self.vms().await?.iter().find(holds) {
            return Err(StepError::pause(DISK_HELD, format!("{holder} holds the disk {}", node.disk.uuid)));
        }
        let names = [base_of(&node.old_name), base_of(&node.new_name)];
        let call = self.hypervisor.call();
        let copied = guarded(&call, self.hypervisor.copy_disk(place, &mark(node), &names, &call)).await?;
        let copy = copied.map_err(|error| not_copied(node, place, error))?;
        let note = format!("the disk {} is copied to {}, a separate disk: {}", place.uuid, copy.path, copy.uuid);
        Ok(StepOutcome { copies: vec![copy.into()], ..StepOutcome::note(note) })
    }

    /// Removes the copies of a node's disk. A disk that is not provably a copy, or is in use, is left and named.
    pub(super) async fn delete_copies(&self, journal: &Journal<'_>, index: usize) -> Result<StepOutcome, StepError> {
        let (mut told, mut left) = (Vec::new(), Vec::new());
        let copies = kept(journal.entries(), index);
        for (at, copy) in copies.iter().enumerate() {
            let deleted = match self.is_called_as_a_copy(journal, index, copy) {
                true => self.delete_copy(copy, self.tries_before(journal, index, &copies[at..])).await?,
                false => Deleted::Left("it is not called as a copy of its disk".to_owned()),
            };
            match deleted {
                Deleted::Gone(words) => told.push(words),
                Deleted::Left(why) => {
                    told.push(format!("the copy at {} is left: {why}", copy.path));
                    left.push(copy.clone());
                }
            }
        }
        let note = if told.is_empty() { "there is no copy".to_owned() } else { told.join("; ") };
        Ok(StepOutcome { copies: left, ..StepOutcome::note(note) })
    }

    /// Whether a path is that of a copy of the node's disk, wherever the disk was then. The journal is a file on a
    /// datastore: a writer of it must not make this program remove other disks.
    fn is_called_as_a_copy(&self, journal: &Journal<'_>, index: usize, copy: &KeptCopy) -> bool {
        let node = &journal.plan().nodes[index];
        let places = journal.entries().iter().filter_map(|entry| match &entry.event {
            Event::Begun { step, disk: Some(disk), .. } if step.node == Some(index) => Some(disk),
            _ => None,
        });
        let mark = mark(node);
        places.chain([&node.disk]).any(|disk| self.hypervisor.copy_path(disk, &mark) == copy.path)
    }

    /// The outcome of earlier attempts to remove the first of these copies. They are removed in this order: an attempt
    /// that has reached a later one has asked for its removal. A pause that names none had another reason.
    fn tries_before(&self, journal: &Journal<'_>, index: usize, copies: &[KeptCopy]) -> TriesBefore {
        let step = Step::of(Action::DeleteCopy, index);
        let mut before = TriesBefore { asked: false, stuck: false };
        for entry in journal.entries() {
            match &entry.event {
                Event::Begun { step: begun, .. } if *begun == step => before.asked |= entry.lease != self.hold.number(),
                Event::Paused { step: paused, reason, .. } if *paused == step => {
                    let named = copies.iter().position(|copy| reason.words.starts_with(&told(&removing(&copy.path))));
                    before.asked |= named.is_some();
                    before.stuck |= named == Some(0) && reason.code == HYPERVISOR_TRANSIENT;
                }
                _ => {}
            }
        }
        before
    }

    async fn delete_copy(&self, copy: &KeptCopy, before: TriesBefore) -> Result<Deleted, StepError> {
        let path = &copy.path;
        let Some(disk) = copy.disk() else {
            let why = "it was not completed, and its content is unknown; remove it if it exists";
            return Ok(Deleted::Left(why.to_owned()));
        };
        let call = self.hypervisor.call();
        match guarded(&call, self.hypervisor.delete_disk(&disk, &call)).await? {
            Ok(()) => Ok(Deleted::Gone(format!("the copy at {path} is removed"))),
            Err(error) if matches!(error.kind, ErrorKind::Refused | ErrorKind::Denied) => {
                Ok(Deleted::Left(error.to_string()))
            }
            // It is gone by an earlier try. Otherwise it was moved or removed, its datastore has another name, or it is
            // another disk.
            Err(error) if error.kind == ErrorKind::NotFound => {
                match before.asked && !self.look(self.hypervisor.has_disk(&disk)).await? {
                    true => Ok(Deleted::Gone(format!("the copy is no longer at {path}"))),
                    false => Ok(Deleted::Left(error.to_string())),
                }
            }
            // A VM may run with it, for as long as its owner likes: no commit waits for that.
            Err(error) if error.kind == ErrorKind::Transient && before.stuck && !error.source.is::<Unconfirmed>() => {
                Ok(Deleted::Left(error.to_string()))
            }
            Err(error) => Err(error.context(removing(path)).into()),
        }
    }
}

/// The beginning of a pause's words for a copy.
fn removing(path: &str) -> String {
    format!("removing the copy at {path}")
}

/// The outcome of earlier attempts to remove a copy.
#[derive(Clone, Copy)]
struct TriesBefore {
    /// Whether the removal may have been asked for.
    asked: bool,
    /// Whether the hypervisor could not do it then.
    stuck: bool,
}

/// The outcome for a copy that is to be removed.
enum Deleted {
    /// It is gone, in words.
    Gone(String),
    /// It is left, and why.
    Left(String),
}

/// Names the remedy if a disk cannot be copied. Its node is off meanwhile.
fn not_copied(node: &PlannedNode, disk: &DiskRef, error: Error) -> StepError {
    let words = format!(
        "copying the data disk {} of {} at {} (a copy needs as much room there as the disk's provisioned size; `resume` tries again once there is room \
         or the privilege, `rollback` gives the disk back without a copy)",
        disk.uuid, node.name, disk.path
    );
    error.context(words).into()
}
