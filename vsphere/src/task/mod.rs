//! Tasks: awaited by their references until their ends, through lost connections and ended sessions.

mod own;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::collector::{Object, Watch};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::reference::MoRef;
use crate::soap::Element;
use crate::treatment::Outcome;

const PATHS: &[&str] = &["info.state", "info.progress", "info.error", "info.result"];

const STATE: &[&str] = &["info.state"];

const DETAILS: &[&str] = &["info.state", "info.descriptionId", "info.entityName", "info.reason"];

pub(crate) use own::works_on_files;

/// Receives the progress of a task, in percent.
pub type Progress<'a> = &'a (dyn Fn(u32) + Send + Sync);

/// The end of a task, if it was seen.
pub(crate) enum TaskEnd {
    /// The task succeeded, with this result, if it has one.
    Done(Option<Element>),
    Failed(Fault),
    /// The task may still run. The text is the reason why its end was not seen.
    Unseen(String),
}

/// A task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its reference.
    pub task: MoRef,
    /// Its kind, such as `VirtualMachine.powerOn`. Empty if it cannot be read.
    pub what: String,
    /// The name of its object. Empty if the object has none, such as a manager.
    pub on: String,
    /// The account that started it, as vCenter writes it. Empty if it had no request.
    pub by: String,
}

/// For messages.
impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |f: &mut fmt::Formatter<'_>, word: &str, name: &str| {
            if name.is_empty() { Ok(()) } else { write!(f, " {word} {name}") }
        };
        f.write_str(if self.what.is_empty() { "a task" } else { &self.what })?;
        named(f, "of", &self.on)?;
        named(f, "by", &self.by)
    }
}

impl Client {
    /// Those of these tasks that have not ended. A task that vCenter no longer knows has ended.
    pub async fn running(&self, tasks: &[MoRef]) -> Result<Vec<Running>> {
        let running = |info: &Object| Running {
            task: info.reference.clone(),
            what: info.text("info.descriptionId").to_owned(),
            on: info.text("info.entityName").to_owned(),
            // Of the reasons, only `TaskReasonUser` has a name.
            by: info.get("info.reason").and_then(|reason| reason.text_of("userName")).unwrap_or_default().to_owned(),
        };
        Ok(self.going_on(tasks, DETAILS).await?.iter().map(running).collect())
    }

    /// The tasks without an end in vCenter's list of all that the account can see (`TaskManager.recentTask`, at most
    /// 200). Also the tasks on files that this client started. [`Client::sees_tasks_on_files`] tells whether the list
    /// has such tasks.
    pub async fn running_anywhere(&self) -> Result<Vec<Running>> {
        let mut recent = self.recent_tasks().await?;
        let own = self.own_tasks().pending.clone();
        let unlisted: Vec<MoRef> =
            own.iter().map(|own| &own.task).filter(|own| !recent.contains(own)).cloned().collect();
        recent.extend(unlisted);
        // Most tasks have ended, so their details are not read.
        let running = self.going_on(&recent, STATE).await?;
        let running: Vec<MoRef> = running.into_iter().map(|info| info.reference).collect();
        self.own_tasks().pending.retain(|pending| running.contains(&pending.task) || !own.contains(pending));
        let mut running = self.running(&running).await?;
        for unread in running.iter_mut().filter(|running| running.what.is_empty()) {
            if let Some(own) = own.iter().find(|own| own.task == unread.task) {
                (unread.what, unread.by) = (own.what.clone(), self.user_name().await);
            }
        }
        Ok(running)
    }

    async fn recent_tasks(&self) -> Result<Vec<MoRef>> {
        let manager = self.service().manager("taskManager")?;
        Ok(self.look(&manager, &["recentTask"]).await?.references_at("recentTask"))
    }

    /// Reads these properties, with [`STATE`] among them, of those tasks that have not ended.
    async fn going_on(&self, tasks: &[MoRef], paths: &[&str]) -> Result<Vec<Object>> {
        let mut seen = match self.look_at(tasks, paths).await {
            // vCenter no longer knows one of them, so each one is read separately.
            Err(error) if error.outcome() == Outcome::NotFound && tasks.len() > 1 => {
                let mut seen = Vec::new();
                for task in tasks {
                    match self.look(task, paths).await {
                        Ok(info) => seen.push(info),
                        Err(error) if error.outcome() == Outcome::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                seen
            }
            Err(error) if error.outcome() == Outcome::NotFound => Vec::new(),
            seen => seen?,
        };
        // A task with an unreadable state counts as not ended.
        seen.retain(|info| !matches!(info.text("info.state"), "success" | "error"));
        Ok(seen)
    }

    /// Waits until a task of another account has succeeded or failed. [`Error::Late`] if it has not at the limit.
    pub async fn ended(&self, task: &MoRef, limit: Duration) -> Result<()> {
        match self.end_of(task, limit, None).await {
            TaskEnd::Done(_) | TaskEnd::Failed(_) => Ok(()),
            // A task that vCenter no longer knows has ended.
            TaskEnd::Unseen(_) if self.running(std::slice::from_ref(task)).await?.is_empty() => Ok(()),
            TaskEnd::Unseen(_) => Err(Error::Late { attempt: format!("waiting for the end of {task}"), limit }),
        }
    }

    pub(crate) async fn end_of(&self, task: &MoRef, limit: Duration, progress: Option<Progress<'_>>) -> TaskEnd {
        let mut watch = Watch::new(self, task.clone(), PATHS);
        let end = self.follow(&mut watch, limit, progress).await;
        watch.close().await;
        end
    }

    async fn follow(&self, watch: &mut Watch, limit: Duration, progress: Option<Progress<'_>>) -> TaskEnd {
        let (begin, mut failures) = (Instant::now(), 0);
        let mut told = None;
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            match watch.next(left).await {
                Ok(info) => {
                    failures = 0;
                    if let Some(end) = end(info) {
                        return end;
                    }
                    let percent = info.parsed::<u32>("info.progress");
                    if let (Some(progress), Some(percent)) = (progress, percent)
                        && told != Some(percent)
                    {
                        told = Some(percent);
                        progress(percent);
                    }
                }
                Err(error) if error.outcome() == Outcome::Transient => {
                    failures += 1;
                    tokio::time::sleep(self.settings().pause_before(failures)).await;
                    if begin.elapsed() >= limit {
                        return TaskEnd::Unseen(format!("its task is not seen to end: {error}"));
                    }
                }
                Err(error) => return TaskEnd::Unseen(format!("its task is not seen to end: {error}")),
            }
            if begin.elapsed() >= limit {
                return TaskEnd::Unseen(format!("its task still runs after {} s", limit.as_secs()));
            }
        }
    }
}

fn end(info: &Object) -> Option<TaskEnd> {
    match info.text("info.state") {
        "success" => Some(TaskEnd::Done(info.get("info.result").cloned())),
        "error" => {
            let fault = info.get("info.error").map(Fault::localized);
            let untyped = || TaskEnd::Unseen("its task failed, and says no reason".to_owned());
            Some(fault.map_or_else(untyped, TaskEnd::Failed))
        }
        _ => None,
    }
}
