//! What a client knows of the tasks on files that it began.

use crate::method::Method;
use crate::reference::MoRef;

/// A task whose end was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) task: MoRef,
    /// What it does, as `TaskInfo.descriptionId` has it, such as `VirtualDiskManager.copyVirtualDisk`.
    pub(crate) what: String,
}

impl Pending {
    pub(crate) fn new(task: MoRef, method: Method, this: &MoRef) -> Self {
        let name = method.name.trim_end_matches("_Task");
        let (first, rest) = name.split_at(name.len().min(1));
        Self { task, what: format!("{}.{}{rest}", this.kind, first.to_ascii_lowercase()) }
    }
}

/// Tasks of managers.
#[derive(Default)]
pub(crate) struct OwnTasks {
    /// Those whose end was not seen.
    pub(crate) pending: Vec<Pending>,
    /// The last one whose end was seen.
    pub(crate) ended: Option<MoRef>,
    /// Whether the client has found one of its own in vCenter's list.
    pub(crate) are_listed: bool,
}
