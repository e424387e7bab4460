//! What a client knows of the tasks on files that it began.

use crate::reference::MoRef;

/// Tasks of managers whose end was not seen, and whether vCenter lists such tasks to the account: none if the client has not looked.
#[derive(Default)]
pub(crate) struct OwnTasks {
    pub(crate) pending: Vec<MoRef>,
    pub(crate) are_listed: Option<bool>,
}
