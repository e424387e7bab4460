//! The self-test whether vCenter lists tasks on files.

use super::path::DatastorePath;
use crate::client::Client;
use crate::error::Result;
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

/// The attempts of the self-test to find its task. A vCenter may list a task moments after its end.
const LOOKS: u32 = 4;

impl Client {
    /// Whether vCenter lists tasks on files to this account. If this client has found none of its tasks in the list, it
    /// starts one without effect: it moves a file that does not exist. It does so once. A later task of the client
    /// corrects the answer.
    ///
    /// # Errors
    /// When that task cannot be started, or the list cannot be read.
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
}
