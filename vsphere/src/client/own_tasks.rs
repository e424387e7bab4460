//! The tasks on files that a client started.

use crate::method::Method;
use crate::reference::MoRef;

/// A task whose end was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) task: MoRef,
    /// Its kind, as in `TaskInfo.descriptionId`, such as `VirtualDiskManager.copyVirtualDisk`.
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
    pub(crate) pending: Vec<Pending>,
    /// The last task whose end was seen.
    pub(crate) ended: Option<MoRef>,
    /// Whether the client has found one of its tasks in vCenter's list.
    pub(crate) are_listed: bool,
}
