//! Waits for earlier requests of all callers that have arrived.

use std::collections::BTreeSet;
use std::time::Instant;

use vsphere::{DatastorePath, MoRef, Running};

use super::VcenterHypervisor;
use super::template_catalog::Note;
use super::trouble::not_now;
use crate::hypervisor::{Error, Result};

/// The prefixes of tasks on files of datastores, and on disks by their files.
const OF_FILES: [&str; 2] = ["FileManager.", "VirtualDiskManager."];
/// The prefix of those that remove something.
const REMOVING: &str = "delete";
/// The prefix of the task that copies a disk by its file.
const COPYING: &str = "copyVirtualDisk";
/// The prefix of the task that clones a VM, and leaves it unchanged.
const CLONING: &str = "VirtualMachine.clone";

impl VcenterHypervisor {
    /// Waits until no task works on a VM of the deployment that may change it. Of tasks on files it waits for those
    /// that vCenter lists: the callers that conclude something from their absence ask [`Self::anybodys_tasks_on_files`]
    /// or [`Self::copies_ended`].
    ///
    /// A clone's task belongs to its template, and a task on a file belongs to a manager. Of these, it waits for the
    /// tasks that run at the beginning, and not for later ones. It does not wait for copies of disks. They may take
    /// hours, and their disk is unknown. Files that a copy reads or writes are locked, so a VM with such a file cannot
    /// be powered on.
    ///
    /// `settling` bounds the wait. Each look before the wait has the usual limit, and the look at the templates that of
    /// a task. A task that still runs then is named: it may be another user's.
    pub(super) async fn settled(&self) -> Result<()> {
        let begin = Instant::now();
        let mut others = self.clones().await?;
        others.extend(self.tasks_on_files().await?.into_iter().filter(|task| !copies(task)));
        self.wait_for(others, begin).await?;
        loop {
            let own = self.all_own().await?;
            let tasks: Vec<MoRef> = own.iter().flat_map(|vm| vm.tasks.clone()).collect();
            let mut running = self.client.running(&tasks).await?;
            running.retain(|task| !task.what.starts_with(CLONING));
            if running.is_empty() {
                return Ok(());
            }
            let is_busy = |vm: &&vsphere::Vm| running.iter().any(|running| vm.tasks.contains(&running.task));
            let busy: Vec<MoRef> = own.iter().filter(is_busy).map(|vm| vm.reference.clone()).collect();
            self.telling_questions(&busy, self.wait_for(running, begin)).await?;
        }
    }

    /// Waits until no copy of a disk by this command's account is running, at most as long as [`Self::settled`].
    pub(super) async fn copies_ended(&self) -> Result<()> {
        let begin = Instant::now();
        self.lists_tasks_on_files().await?;
        let running = self.tasks_on_files().await?.into_iter().filter(copies).collect();
        self.wait_for(running, begin).await
    }

    /// The tasks on the templates that this deployment has imported: it clones no others. If some of their notes are
    /// not read, for example because of many foreign files, also all clones by this command's account.
    async fn clones(&self) -> Result<Vec<Running>> {
        let (notes, older) = self.laid.every().await?;
        let mut running = self.client.running(&self.tasks_of_templates(&notes).await?).await?;
        if older > 0 {
            let own = self.client.user_name().await;
            let mut clones = self.client.running_anywhere().await?;
            clones.retain(|task| task.what.starts_with(CLONING) && task.by.eq_ignore_ascii_case(&own));
            running.extend(clones);
        }
        Ok(running)
    }

    async fn tasks_of_templates(&self, notes: &[Note]) -> Result<Vec<MoRef>> {
        let mut tasks = BTreeSet::new();
        for seal in notes.iter().filter_map(|note| note.seal.as_ref()) {
            match self.client.look(&MoRef::vm(&seal.reference), &["recentTask"]).await {
                Ok(seen) => tasks.extend(seen.references_at("recentTask")),
                Err(error) if error.outcome() == vsphere::Outcome::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(tasks.into_iter().collect())
    }

    /// The tasks on disks and files by this command's account that vCenter lists. A task does not name its file: a task
    /// of another account may be about any file on this vCenter.
    async fn tasks_on_files(&self) -> Result<Vec<Running>> {
        let own = self.client.user_name().await;
        let mut running = self.listed_tasks_on_files().await?;
        running.retain(|task| task.by.eq_ignore_ascii_case(&own));
        Ok(running)
    }

    /// As [`Self::tasks_on_files`], for all accounts that this one sees.
    ///
    /// # Errors
    /// [`crate::hypervisor::ErrorKind::Transient`] if vCenter does not list such tasks to this account: an empty list
    /// then proves nothing.
    pub(super) async fn anybodys_tasks_on_files(&self) -> Result<Vec<Running>> {
        self.lists_tasks_on_files().await?;
        self.listed_tasks_on_files().await
    }

    async fn listed_tasks_on_files(&self) -> Result<Vec<Running>> {
        let mut running = self.client.running_anywhere().await?;
        running.retain(|task| on_files(task).is_some());
        Ok(running)
    }

    /// Fails if vCenter does not list tasks on files to this account. For conclusions from the list of tasks.
    async fn lists_tasks_on_files(&self) -> Result<()> {
        if self.sees_tasks_on_files().await? { Ok(()) } else { Err(not_now(self.unlisted_words().await)) }
    }

    /// Whether vCenter lists tasks on files to this account.
    pub(super) async fn sees_tasks_on_files(&self) -> Result<bool> {
        let root = DatastorePath::new(self.places.datastore.name.clone(), "");
        Ok(self.client.sees_tasks_on_files(&root, &self.places.datacenter).await?)
    }

    /// The consequence if vCenter lists no tasks on files to this account, and the remedy.
    pub(super) async fn unlisted_words(&self) -> String {
        let (user, datacenter) = (self.client.user_name().await, &self.places.datacenter_path);
        format!(
            "vCenter does not list to {user} the tasks on files that it began: after an interrupted command nothing shows whether a deletion \
             or a copy of a disk still runs, and the next command does not remove an incomplete copy. Give {user} Read-only on the data \
             center {datacenter} without propagation, and, if that changes nothing, on the root of the vCenter"
        )
    }

    async fn wait_for(&self, tasks: Vec<Running>, begin: Instant) -> Result<()> {
        for running in tasks {
            let left = self.settling.saturating_sub(begin.elapsed());
            match self.client.ended(&running.task, left).await {
                Ok(()) => {}
                Err(vsphere::Error::Late { .. }) => {
                    let limit = self.settling.as_secs();
                    let question = self.question_at(&running.task).await;
                    let question = question.map(|question| format!("; {question}")).unwrap_or_default();
                    return Err(not_now(format!(
                        "{running} still runs after {limit} s: wait for its end, or end it{question}"
                    )));
                }
                Err(error) => return Err(Error::from(error)),
            }
        }
        Ok(())
    }
}

fn on_files(task: &Running) -> Option<&str> {
    OF_FILES.iter().find_map(|manager| task.what.strip_prefix(manager))
}

/// Whether a task copies a disk by its file.
fn copies(task: &Running) -> bool {
    on_files(task).is_some_and(|what| what.starts_with(COPYING))
}

/// Whether a task removes a file or a disk by its file.
pub(super) fn removes(task: &Running) -> bool {
    on_files(task).is_some_and(|what| what.starts_with(REMOVING))
}
