//! Why a run waits, pauses or turns: a stable code for programs, and words for users.

use std::fmt;

use contract::swap::Rejection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refusal::codes;
use crate::nodes::told;
use crate::schema;

/// A reason. As JSON it has the members `code` and `reason`, as a node's refusal has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    // Of [`REASONS`], of [`super::CODES`], or the node's own, such as `drain.blocked`.
    /// Code of the reason.
    #[serde(default = "uncoded")]
    #[schemars(schema_with = "schema::word", example = &"workers.not-joined")]
    pub code: String,
    /// The same reason in words.
    #[serde(rename = "reason")]
    #[schemars(schema_with = "schema::sentence")]
    pub words: String,
}

impl Reason {
    /// A reason in these words, which may come from a node or the hypervisor: they are cut, and lose their control
    /// characters.
    pub fn new(code: &str, words: impl fmt::Display) -> Self {
        Self { code: code.to_owned(), words: told(&words.to_string()) }
    }

    /// The same, with what it is about in front.
    #[must_use]
    pub(super) fn of(self, what: impl fmt::Display) -> Self {
        Self::new(&self.code, format!("{what}: {}", self.words))
    }
}

/// For people: the words, and the code to look up.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.words, self.code)
    }
}

/// A node's refusal keeps its own code.
impl From<Rejection> for Reason {
    fn from(Rejection { code, reason }: Rejection) -> Self {
        Self::new(&code, reason)
    }
}

/// The code of a reason that an earlier version noted without one.
fn uncoded() -> String {
    UNCODED.to_owned()
}

codes! {
    REASONS;
    HYPERVISOR_TRANSIENT, "hypervisor.transient", "The hypervisor cannot do it now. It is tried again.";
    HYPERVISOR_CHANGED, "hypervisor.changed", "A VM was changed since it was looked at, not by this upgrade. It is looked at again.";
    HYPERVISOR_IN_DOUBT, "hypervisor.in-doubt", "The hypervisor's answer is lost. Whether it has done what was asked is looked up.";
    HYPERVISOR_REFUSED, "hypervisor.refused", "The hypervisor refuses, and will refuse again. A node that is away goes back; otherwise the upgrade waits for the operator.";
    HYPERVISOR_DENIED, "hypervisor.denied", "A privilege on the hypervisor is missing. No node goes back for it: the rollback needs it as well.";
    HYPERVISOR_NOT_FOUND, "hypervisor.not-found", "A VM or a disk no longer exists.";
    STORE, "store.unavailable", "The store of the lease and the journal cannot be read or written.";
    WAITING, "upgrade.waiting", "The awaited event has not happened yet; the reason is unknown.";
    ASKED, "upgrade.asked", "The operator asked for it.";
    WITHDRAWN, "upgrade.withdrawn", "Nothing of it was begun, and another plan takes its place: the cluster wants something else, or there is no room for its size.";
    OTHER_NODE, "upgrade.other-node", "A node that is swapped cannot become healthy because another control-plane node is lost or unhealthy. It does not go back for that.";
    UNREACHABLE, "upgrade.unreachable", "No control-plane node can be reached from where the upgrade is driven.";
    QUORUM, "upgrade.quorum", "etcd has a quorum again, before nodes that go back all at once were stopped. Ask for the rollback again: another order is due.";
    NODE_CORDONED, "upgrade.node-cordoned", "A node that is swapped is healthy, and takes no pods: it is cordoned. It does not go back for that.";
    NODE_DIFFERS, "upgrade.node-differs", "A node runs another image, or with another VM, data disk or member of etcd, than the plan says.";
    NODE_GAVE_UP, "upgrade.node-gave-up", "A node gave up what it was asked for, and gives no code.";
    NODE_IMAGE, "upgrade.node-image", "A node's image does not know of what it is asked for.";
    VM_STATE, "upgrade.vm-state", "A VM is not as the step needs it: on, off, disconnected, or without another disk.";
    VM_UNASKABLE, "upgrade.vm-unaskable", "A guest cannot be asked to shut down: VMware Tools do not run in it. Its power is not cut for that.";
    VM_COPIED, "upgrade.vm-copied", "Two VMs carry the same identity: one is a copy of the other. Neither is touched until one is removed.";
    VM_GONE, "upgrade.vm-gone", "A VM that the upgrade needs is gone, or nothing proves that it is gone, so it may run. The message says which.";
    VM_LEFT, "upgrade.vm-left", "A VM carries the stamp of the swap, and nothing is noted of having made it. It stays until the operator removes it or takes its stamp away.";
    DISK_HELD, "upgrade.disk-held", "A data disk is not where the step needs it: another VM holds it, or it has just moved.";
    OVA, "upgrade.ova", "The OVA cannot be read, is damaged, or is not the one that was planned with.";
    HERE, "upgrade.here", "The machine that drives the upgrade cannot do its part: it has no room, for example.";
    PLAN, "upgrade.plan", "The plan has a step that this version of the program does not take.";
    UNCODED, "upgrade.uncoded", "An earlier version of the program noted the reason, without a code.";
}

#[cfg(test)]
mod tests;
