//! What a client knows of the tasks on files that it began.

use crate::reference::MoRef;

/// Tasks of managers.
#[derive(Default)]
pub(crate) struct OwnTasks {
    /// Those whose end was not seen.
    pub(crate) pending: Vec<MoRef>,
    /// The last one whose end was seen.
    pub(crate) ended: Option<MoRef>,
    /// Whether the client has found one of its own in vCenter's list.
    pub(crate) are_listed: bool,
}
