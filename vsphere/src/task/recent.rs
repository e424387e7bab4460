//! Tasks of the last minutes, ended ones among them, as far as the account sees them.

use crate::client::Client;
use crate::error::Result;
use crate::treatment::Outcome;

/// A task of the last minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// What it does, such as `FileManager.deleteFile`.
    pub what: String,
    /// The kind of the object that it works on, such as `Folder`; none if it names no object.
    pub on: Option<String>,
    /// Who has begun it, as vCenter names the account; empty if no user has.
    pub by: String,
}

impl Client {
    /// The tasks that `TaskManager.recentTask` lists.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn details_of_recent_tasks(&self) -> Result<Vec<Recent>> {
        let mut recent = Vec::new();
        for task in &self.recent_tasks().await? {
            match self.look(task, &["info.descriptionId", "info.entity", "info.reason"]).await {
                Ok(info) => recent.push(Recent {
                    what: info.text("info.descriptionId").to_owned(),
                    on: info.reference_at("info.entity").map(|object| object.kind),
                    by: info.get("info.reason").and_then(|by| by.text_of("userName")).unwrap_or_default().to_owned(),
                }),
                // vCenter has forgotten it meanwhile.
                Err(error) if error.outcome() == Outcome::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(recent)
    }
}
