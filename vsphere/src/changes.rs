//! Changing calls: each is made under a guard.

use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use crate::client::{Client, Pending};
use crate::error::{Error, Result};
use crate::guard::Fence;
use crate::method::{CLONE_VM, Method, POWER_OFF_VM, POWER_ON_VM, RECONFIGURE_COMPUTE_RESOURCE, RECONFIGURE_VM};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::task::{Progress, TaskEnd, works_on_files};
use crate::treatment::Again;

/// Tasks that take moments, and that a node may wait for. They start without waiting for a task slot.
const AT_ONCE: [Method; 4] = [POWER_ON_VM, POWER_OFF_VM, RECONFIGURE_VM, RECONFIGURE_COMPUTE_RESOURCE];

/// How much of an upload was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that were sent.
    pub bytes: u64,
    /// Bytes of all files.
    pub total: u64,
}

impl Sent {
    /// The sent share in percent, rounded down.
    pub fn percent(self) -> u32 {
        let percent = u128::from(self.bytes) * 100 / u128::from(self.total.max(1));
        u32::try_from(percent.min(100)).unwrap_or(100)
    }
}

/// Receives the progress of an upload every few seconds, and once more at its end.
pub type UploadProgress<'a> = &'a (dyn Fn(Sent) + Send + Sync);

/// Makes changes under a guard. Changes of one VM are made one after the other.
pub struct Changes<'a> {
    pub(crate) client: &'a Client,
    pub(crate) guard: &'a dyn Fence,
    pub(crate) progress: Option<Progress<'a>>,
    pub(crate) upload: Option<UploadProgress<'a>>,
    limit: Duration,
}

impl Client {
    /// Changes that this guard permits.
    pub fn changes<'a>(&'a self, guard: &'a dyn Fence) -> Changes<'a> {
        Changes { client: self, guard, progress: None, upload: None, limit: self.settings().task_limit }
    }
}

impl<'a> Changes<'a> {
    /// The same changes with a time limit for each task. After it the task continues, and the error is
    /// [`Error::InDoubt`].
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same changes with reports of the progress of uploads.
    #[must_use]
    pub fn telling_upload(self, upload: UploadProgress<'a>) -> Self {
        Self { upload: Some(upload), ..self }
    }

    /// The same changes with reports of the progress of tasks.
    #[must_use]
    pub fn telling(self, progress: Progress<'a>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Waits for the turn of an object that vCenter changes one task after the other. Templates are cloned by many
    /// callers at once, and managers have many tasks.
    async fn turn(&self, method: Method, this: &MoRef) -> Option<OwnedMutexGuard<()>> {
        let has_turns = matches!(this.kind.as_str(), "VirtualMachine" | "ClusterComputeResource") && method != CLONE_VM;
        if has_turns { Some(self.client.turn(this).await) } else { None }
    }

    /// Calls a changing method that has no task.
    pub(crate) async fn change(&self, method: Method, this: &MoRef, arguments: Vec<Element>) -> Result<Element> {
        let _turn = self.turn(method, this).await;
        self.client.perform(method, this, arguments, self.guard).await
    }

    /// Calls a method that starts a task, and waits for the task's end. While another task of the object blocks it, it
    /// is started again.
    pub(crate) async fn run(&self, method: Method, this: &MoRef, arguments: Vec<Element>) -> Result<Option<Element>> {
        let attempt = || format!("{} of {this}", method.name);
        let _turn = self.turn(method, this).await;
        let _slot = if AT_ONCE.contains(&method) { None } else { self.client.task_slot(&attempt()).await };
        let (begin, mut waits) = (Instant::now(), 0);
        loop {
            let response = self.client.perform(method, this, arguments.clone(), self.guard).await?;
            let Some(task) = response.reference_of("returnval") else {
                return Err(Error::in_doubt(attempt(), "the answer names no task"));
            };
            let is_on_files = works_on_files(this);
            if is_on_files {
                self.client.own_tasks().pending.push(Pending::new(task.clone(), method, this));
            }
            let end = self.client.end_of(&task, self.limit, self.progress).await;
            if is_on_files && !matches!(end, TaskEnd::Unseen(_)) {
                self.client.saw_end_of(&task).await;
            }
            match end {
                TaskEnd::Done(result) => return Ok(result),
                TaskEnd::Failed(fault) => {
                    let is_later = fault.treatment().again == Again::Later;
                    if !is_later || begin.elapsed() >= self.client.settings().patience {
                        return Err(Error::of_fault(attempt(), fault));
                    }
                    waits += 1;
                    tokio::time::sleep(self.client.settings().pause_before(waits)).await;
                }
                TaskEnd::Unseen(reason) => return Err(Error::in_doubt(attempt(), reason)),
            }
        }
    }
}
