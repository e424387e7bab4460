//! Tasks: awaited by their reference until they have ended, through lost connections and ended sessions.

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

/// Is told of a task's progress, in percent, or of an upload's.
pub type Progress<'a> = &'a (dyn Fn(u32) + Send + Sync);

/// How a task ended, as far as it can be seen.
pub(crate) enum TaskEnd {
    /// With this result, if it has one.
    Done(Option<Element>),
    Failed(Fault),
    /// It may still go on: why nobody can see.
    Unseen(String),
}

/// A task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// What names it.
    pub task: MoRef,
    /// What it does, such as `VirtualMachine.powerOn`; empty if that cannot be read.
    pub what: String,
    /// The name of what it works on; empty where that has none, as a manager.
    pub on: String,
    /// Who has begun it, as vCenter names the account; empty if it was nobody's request.
    pub by: String,
}

/// For people.
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
    /// Those of these tasks that have not ended. A task that vCenter has forgotten has.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn running(&self, tasks: &[MoRef]) -> Result<Vec<Running>> {
        let running = |info: &Object| Running {
            task: info.reference.clone(),
            what: info.text("info.descriptionId").to_owned(),
            on: info.text("info.entityName").to_owned(),
            // Of the reasons only `TaskReasonUser` has a name.
            by: info.get("info.reason").and_then(|reason| reason.text_of("userName")).unwrap_or_default().to_owned(),
        };
        Ok(self.going_on(tasks, DETAILS).await?.iter().map(running).collect())
    }

    /// Tasks that have not ended, of all that the account can see, as far as vCenter lists them (`TaskManager.recentTask`, at
    /// most 200), and those on files that this client began itself. What the list leaves out, [`Client::sees_tasks_on_files`] says.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn running_anywhere(&self) -> Result<Vec<Running>> {
        let mut recent = self.recent_tasks().await?;
        let own = self.own_tasks().pending.clone();
        let unlisted: Vec<MoRef> =
            own.iter().map(|own| &own.task).filter(|own| !recent.contains(own)).cloned().collect();
        recent.extend(unlisted);
        // Most have ended: of those no more is read.
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

    /// These properties of those tasks that have not ended, [`STATE`] among them.
    async fn going_on(&self, tasks: &[MoRef], paths: &[&str]) -> Result<Vec<Object>> {
        let mut seen = match self.look_at(tasks, paths).await {
            // One of them is forgotten: each is asked for by itself then.
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
        // A state that cannot be read says nothing of the end.
        seen.retain(|info| !matches!(info.text("info.state"), "success" | "error"));
        Ok(seen)
    }

    /// Waits until a task that somebody else started has ended, well or not.
    ///
    /// # Errors
    /// [`Error::Late`] when it has not at the limit.
    pub async fn ended(&self, task: &MoRef, limit: Duration) -> Result<()> {
        match self.end_of(task, limit, None).await {
            TaskEnd::Done(_) | TaskEnd::Failed(_) => Ok(()),
            // What vCenter does not know any more has ended.
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
                return TaskEnd::Unseen(format!("its task still goes on after {} s", limit.as_secs()));
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
