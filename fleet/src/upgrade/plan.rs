//! The plan of an upgrade: a straight list of steps, saved before the first one is taken.

use std::net::Ipv4Addr;

use crate::hypervisor::{DiskRef, Placement};
use contract::properties::ControlNode;
use contract::swap::Image;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::target::Target;

/// In which order nodes are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One after the other, each found good before the next.
    Rolling,
    /// All off, all on.
    AllAtOnce,
}

/// Which nodes go back when one is not found good on the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// That node. The others stay where they are, and the upgrade waits for a person.
    Node,
    /// All nodes.
    All,
}

/// What the operator wants beside the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// In which order.
    pub mode: Mode,
    /// How long a swapped node may take to be found good, in seconds; then it goes back.
    pub gate_seconds: u64,
    /// How long pods may take to move away from a node, in seconds.
    pub drain_seconds: u64,
    /// Which nodes go back when one is not found good.
    pub on_failure: OnFailure,
    /// Whether an older image is meant.
    pub downgrade: bool,
    /// Fingerprint of the key that must have signed the OVA and is pinned at the commit, in place of the cluster's.
    pub publisher: Option<String>,
    /// Where new VMs are put.
    #[serde(default)]
    pub placement: Placement,
}

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Its name in Kubernetes.
    pub name: String,
    /// Where its endpoint listens.
    pub address: Ipv4Addr,
    /// BIOS UUID of the VM that it runs in.
    pub old: Uuid,
    /// That VM's name.
    pub old_name: String,
    /// Name of the VM that takes its place.
    pub new_name: String,
    /// The disk that moves, as the hypervisor calls it, and where it was when the plan was made.
    pub disk: DiskRef,
    /// The keys of the network adapters that were connected when the plan was made.
    pub adapters: Vec<String>,
    /// The disk's identity, as the node calls it.
    pub identity: Uuid,
    /// Its member of etcd, hexadecimal.
    pub member: String,
    /// The image that it runs before.
    pub from: Image,
    /// Fingerprint of the publisher's key that is pinned there before.
    #[serde(default)]
    pub pinned: Option<String>,
    /// The name of its swap.
    pub swap: Uuid,
    /// Whether it is cordoned when the plan is made: it stays so then.
    #[serde(default)]
    pub cordoned: bool,
    /// Whether it leads etcd when the plan is made.
    pub leads: bool,
    /// Whether it holds the virtual IP when the plan is made.
    pub holds_address: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Verifies the OVA.
    Verify,
    /// Pulls a snapshot of etcd.
    Snapshot,
    /// Makes the new VM, powered off.
    Import,
    /// Lets the node prepare the swap.
    Prepare,
    /// Shuts the old VM down and proves that it is off.
    ShutDown,
    /// Disconnects the old VM's network interface.
    Fence,
    /// Takes the data disk from the old VM.
    Detach,
    /// Gives it to the new VM.
    Attach,
    /// Powers the new VM on.
    PowerOn,
    /// Waits until the node was found good.
    Gate,
    /// Withdraws the swap.
    Cancel,
    /// Moves the virtual IP, the leader and the pods away from the new VM, if it runs well.
    EvacuateNew,
    /// Makes sure that the old VM is off.
    StopOld,
    /// Makes sure that the new VM is off.
    StopNew,
    /// Disconnects the new VM's network interface.
    FenceNew,
    /// Takes the data disk from the new VM.
    DetachNew,
    /// Gives it to the old VM.
    AttachOld,
    /// Connects the old VM's network interface again.
    ReconnectOld,
    /// Powers the old VM on.
    PowerOnOld,
    /// Waits until the node is good on its old image.
    GateOld,
    /// Removes the new VM.
    DestroyNew,
    /// Looks whether all nodes are good on the new image.
    Check,
    /// Makes a node's swap final.
    Commit,
    /// Removes the old VM.
    DestroyOld,
    /// Leaves a node as it is, and makes its swap final if it is good on the new image.
    Keep,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// To which node, by its place in the plan; none for the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
}

impl Step {
    /// A step of the whole upgrade.
    pub fn whole(action: Action) -> Self {
        Self { action, node: None }
    }

    /// Whether it takes a disk away from its VM.
    pub fn detaches(self) -> bool {
        matches!(self.action, Action::Detach | Action::DetachNew)
    }

    /// A step of one node, by its place in the plan.
    pub fn of(action: Action, node: usize) -> Self {
        Self { action, node: Some(node) }
    }
}

/// A condition that holds, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What it is about: a node, the OVA, the cluster.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
}

/// The plan of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name: that of the journal, too.
    pub id: Uuid,
    /// The deployment that the VMs are stamped with.
    pub deployment: Uuid,
    /// The cluster: UID of the namespace kube-system.
    pub cluster: Uuid,
    /// All control nodes, swapped or not: so many members etcd must have, all well, before one leaves.
    pub members: Vec<ControlNode>,
    /// The OVA to upgrade to, and what was verified of it.
    pub target: Target,
    /// What was wanted.
    pub options: Options,
    /// What it rests on, for people.
    pub grounds: Vec<Evidence>,
    /// The nodes in the order in which they are swapped.
    pub nodes: Vec<PlannedNode>,
    /// The way forward.
    pub steps: Vec<Step>,
}

/// The name of a node's new VM: that of the old one without its build, and the new build. Names that an operator has
/// kept apart stay apart.
pub(super) fn new_name(old: &str, target: &Target) -> String {
    let is_build = |end: &str| end.len() == 7 && end.chars().all(|digit| digit.is_ascii_hexdigit());
    let base = old.rsplit_once('-').filter(|(_, end)| is_build(end)).map_or(old, |(base, _)| base);
    format!("{base}-{}", target.image.short())
}
