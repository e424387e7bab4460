//! Tasks of `FileManager` and `VirtualDiskManager` that this client started, and whether vCenter lists such tasks to
//! the account. `TaskManager.recentTask` "contains only Task objects that the client has permission to access, which is
//! determined by having permission to access the Task object's managed entity" (vSphere Web Services API). The entity
//! of these tasks is not documented. The client therefore checks whether one of its tasks is listed.

use crate::client::Client;
use crate::error::Result;
use crate::reference::MoRef;

/// Whether an object is a manager whose tasks work on files.
pub(crate) fn works_on_files(this: &MoRef) -> bool {
    matches!(this.kind.as_str(), "FileManager" | "VirtualDiskManager")
}

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

    /// Searches the list for the last task of this client that ended.
    pub(crate) async fn finds_ended(&self) -> Result<()> {
        let ended = self.own_tasks().ended.clone();
        let listed = match self.recent_tasks().await {
            Err(error) if error.lacks_privilege() => return Ok(()),
            listed => listed?,
        };
        self.own_tasks().are_listed |= ended.is_some_and(|ended| listed.contains(&ended));
        Ok(())
    }
}
