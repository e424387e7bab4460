//! Tasks of `FileManager` and `VirtualDiskManager` that this client began, and whether vCenter lists such tasks to the account:
//! `TaskManager.recentTask` "contains only Task objects that the client has permission to access, which is determined by having permission
//! to access the Task object's managed entity" (vSphere Web Services API). Which entity these tasks have is not documented. So the client
//! looks whether a task of its own is listed.

use crate::client::Client;
use crate::datastore::DatastorePath;
use crate::error::{Error, Result};
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

/// Whether an object is a manager whose tasks work on files.
pub(crate) fn works_on_files(this: &MoRef) -> bool {
    matches!(this.kind.as_str(), "FileManager" | "VirtualDiskManager")
}

impl Client {
    /// Forgets a task that ended. It shows whether vCenter lists such tasks, for ended ones stay in the list for minutes. That it does is
    /// looked for once; a privilege may be given later.
    pub(crate) async fn saw_end_of(&self, task: &MoRef) {
        self.own_tasks().pending.retain(|pending| pending != task);
        if self.own_tasks().are_listed == Some(true) {
            return;
        }
        match self.recent_tasks().await {
            Ok(listed) => self.own_tasks().are_listed = Some(listed.contains(task)),
            Err(error) if error.lacks_privilege() => self.own_tasks().are_listed = Some(false),
            Err(error) => log::debug!("looking whether {task} is listed: {error}"),
        }
    }

    /// Whether vCenter lists tasks on files to this account. If this client has seen none of its own listed, it begins one that changes
    /// nothing: it moves a file that does not exist.
    ///
    /// # Errors
    /// When that task cannot be begun, or the list cannot be read.
    pub async fn sees_tasks_on_files(&self, directory: &DatastorePath, datacenter: &MoRef) -> Result<bool> {
        if self.own_tasks().are_listed == Some(true) {
            return Ok(true);
        }
        let missing = |name: &str| directory.join(&format!("no-file-{}-{name}", std::process::id()));
        let moved = self.changes(&Unguarded).move_file(&missing("a"), &missing("b"), datacenter).await;
        let are_listed = self.own_tasks().are_listed;
        match (are_listed, moved) {
            (Some(known), _) => Ok(known),
            (None, Err(error)) if error.outcome() != Outcome::NotFound => Err(error),
            (None, _) => Err(Error::unanswered("looking whether tasks on files are listed", "it is not known")),
        }
    }
}
