//! Tasks of `FileManager` and `VirtualDiskManager` that this client started, and whether vCenter lists such tasks to
//! the account. `TaskManager.recentTask` "contains only Task objects that the client has permission to access, which is
//! determined by having permission to access the Task object's managed entity" (vSphere Web Services API). The entity
//! of these tasks is not documented. The client therefore checks whether one of its tasks is listed.

use crate::client::Client;
use crate::datastore::DatastorePath;
use crate::error::Result;
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

/// Whether an object is a manager whose tasks work on files.
pub(crate) fn works_on_files(this: &MoRef) -> bool {
    matches!(this.kind.as_str(), "FileManager" | "VirtualDiskManager")
}

/// The attempts of the self-test to find its task. A vCenter may list a task moments after its end.
const LOOKS: u32 = 4;

impl Client {
    /// Removes a task that ended. Ended tasks stay in vCenter's list for minutes, so the list shows whether it has such
    /// tasks. The client reads it after each task until it has found one, because a privilege may be granted later.
    pub(crate) async fn saw_end_of(&self, task: &MoRef) {
        let are_listed = {
            let mut own = self.own_tasks();
            own.pending.retain(|pending| pending.task != *task);
            own.ended = Some(task.clone());
            own.are_listed
        };
        if !are_listed && let Err(error) = self.finds_ended().await {
            log::debug!("looking whether {task} is listed: {error}");
        }
    }

    /// Whether vCenter lists tasks on files to this account. If this client has found none of its tasks in the list, it
    /// starts one without effect: it moves a file that does not exist. It does so once. A later task of the client
    /// corrects the answer.
    pub async fn sees_tasks_on_files(&self, directory: &DatastorePath, datacenter: &MoRef) -> Result<bool> {
        if self.own_tasks().are_listed {
            return Ok(true);
        }
        let tested = self.files_test().get_or_try_init(|| self.tests_files(directory, datacenter)).await?;
        Ok(*tested || self.own_tasks().are_listed)
    }

    async fn tests_files(&self, directory: &DatastorePath, datacenter: &MoRef) -> Result<bool> {
        let missing = |name: &str| directory.join(&format!("no-file-{}-{name}", std::process::id()));
        match self.changes(&Unguarded).move_file(&missing("a"), &missing("b"), datacenter).await {
            Err(error) if error.outcome() != Outcome::NotFound => return Err(error),
            _ => {}
        }
        for look in 1..=LOOKS {
            if self.own_tasks().are_listed {
                return Ok(true);
            }
            tokio::time::sleep(self.settings().pause_before(look)).await;
            self.finds_ended().await?;
        }
        Ok(self.own_tasks().are_listed)
    }

    /// Searches the list for the last task of this client that ended.
    async fn finds_ended(&self) -> Result<()> {
        let ended = self.own_tasks().ended.clone();
        let listed = match self.recent_tasks().await {
            Err(error) if error.lacks_privilege() => return Ok(()),
            listed => listed?,
        };
        self.own_tasks().are_listed |= ended.is_some_and(|ended| listed.contains(&ended));
        Ok(())
    }
}
