//! What a client knows of the tasks on files that it began.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::reference::MoRef;

/// Tasks of managers whose end was not seen, and whether vCenter lists such tasks to the account.
#[derive(Default)]
pub(crate) struct OwnTasks(Mutex<State>);

#[derive(Default)]
struct State {
    pending: Vec<MoRef>,
    are_listed: Option<bool>,
}

impl OwnTasks {
    pub(crate) fn pending(&self) -> Vec<MoRef> {
        self.state().pending.clone()
    }

    pub(crate) fn began(&self, task: &MoRef) {
        self.state().pending.push(task.clone());
    }

    pub(crate) fn ended(&self, task: &MoRef) {
        self.state().pending.retain(|pending| pending != task);
    }

    /// None as long as none was looked for.
    pub(crate) fn are_listed(&self) -> Option<bool> {
        self.state().are_listed
    }

    pub(crate) fn set_listed(&self, are_listed: bool) {
        self.state().are_listed = Some(are_listed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
