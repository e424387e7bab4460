//! The plan of an upgrade: a straight list of steps, saved before the first one is taken.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::hypervisor::{DiskRef, Placement, Vm, VmSize};
use contract::node::Node;
use contract::properties::ControlNode;
use contract::swap::Image;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::kept_copy::DiskCopy;
use super::target::Target;

/// In which order nodes are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One after the other, each healthy before the next.
    Rolling,
    AllAtOnce,
}

/// The nodes that go back when one is not healthy on the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// That node. The others stay where they are, and the upgrade waits for the operator.
    Node,
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Options {
    pub mode: Mode,
    /// How long a swapped node may take to be healthy, in seconds; then it goes back.
    pub gate_seconds: u64,
    /// How long pods may take to move away from a node, in seconds.
    pub drain_seconds: u64,
    /// The nodes that go back when one is not healthy.
    pub on_failure: OnFailure,
    /// Whether an older image is meant.
    pub downgrade: bool,
    /// Fingerprint of the key that must have signed the OVA and is pinned at the commit, in place of the cluster's.
    pub publisher: Option<String>,
    /// The publisher whose key must have signed the OVA if no key is given, by the description of the cluster. It
    /// changes no pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described_publisher: Option<DescribedPublisher>,
    /// Where new VMs are put.
    #[serde(default)]
    pub placement: Placement,
    /// The size of new VMs; `None` for the size of the replaced one. A node whose VM has another size is swapped also
    /// if it runs the image already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<VmSize>,
    /// Whether each data disk is copied, as the old image has left it, before the new VM gets it. For operators:
    /// nothing here attaches a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy_disks: bool,
}

/// A publisher that the description of a cluster names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescribedPublisher {
    pub key: String,
    /// Its source, for users: the file.
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedNode {
    pub name: String,
    /// Where its endpoint listens.
    pub address: Ipv4Addr,
    /// BIOS UUID of the VM that it runs in.
    pub old: Uuid,
    pub old_name: String,
    /// Name of the VM that takes its place.
    pub new_name: String,
    /// The disk that moves, by the hypervisor's reference, and where it was when the plan was made.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Verify,
    /// Pulls a snapshot of etcd.
    Snapshot,
    /// Creates the new VM, powered off.
    #[serde(rename = "import")]
    CloneVm,
    /// Lets the node prepare the swap.
    Prepare,
    /// Shuts the old VM down and proves that it is off.
    ShutDown,
    /// Disconnects the old VM's network interface.
    Fence,
    /// Takes the data disk from the old VM.
    Detach,
    /// Copies it, as the old VM has left it.
    Copy,
    /// Gives it to the new VM.
    Attach,
    /// Powers the new VM on.
    PowerOn,
    /// Waits until the node is healthy.
    Gate,
    /// Withdraws the swap.
    Cancel,
    /// Moves the virtual IP, the leader and the pods away from the new VM, if it is healthy.
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
    /// Looks whether all nodes are healthy on the new image.
    Check,
    /// Makes a node's swap final.
    Commit,
    /// Removes the old VM.
    DestroyOld,
    /// Removes the copies of the data disk.
    DeleteCopy,
    /// Leaves a node as it is, and makes its swap final if it is healthy on the new image.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    pub action: Action,
    /// The node, by its place in the plan. `None` for the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
}

impl Step {
    /// A step of the whole upgrade.
    pub fn whole(action: Action) -> Self {
        Self { action, node: None }
    }

    pub fn detaches(self) -> bool {
        matches!(self.action, Action::Detach | Action::DetachNew)
    }

    /// A step of one node, by its place in the plan.
    pub fn of(action: Action, node: usize) -> Self {
        Self { action, node: Some(node) }
    }
}

/// A condition that holds, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Its subject: a node, the OVA, the cluster.
    pub subject: String,
    pub evidence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Its name: that of the journal, too.
    pub id: Uuid,
    /// The deployment that the VMs are stamped with.
    pub deployment: Uuid,
    /// The cluster: UID of the namespace kube-system.
    pub cluster: Uuid,
    /// All control-plane nodes, swapped or not: so many members etcd must have, all healthy, before one leaves.
    pub members: Vec<ControlNode>,
    /// The OVA to upgrade to, with its verified facts.
    pub target: Target,
    pub options: Options,
    /// Its grounds, for users.
    pub grounds: Vec<Evidence>,
    /// The nodes in the order in which they are swapped.
    pub nodes: Vec<PlannedNode>,
    /// BIOS UUIDs of the deployment's VMs that belong to none of these nodes: those of unchanged control-plane nodes,
    /// and those that earlier upgrades have left. The removal and the power-on of the deployment's VMs know them by the
    /// last upgrade alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub other_vms: BTreeSet<Uuid>,
    /// The same of data disks, each at its present or last known place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_disks: Vec<DiskRef>,
    /// Copies of data disks that earlier upgrades have left. They are only named: an upgrade removes only its own
    /// copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_copies: Vec<DiskCopy>,
    /// The way forward.
    pub steps: Vec<Step>,
}

/// Whether nothing is left to do of a node: it runs the image, in a VM of the desired size. An unknown size counts as
/// another one.
pub(super) fn is_there(facts: &Node, vm: Option<&Vm>, target: &Target, options: &Options) -> bool {
    let has = |size: VmSize| vm.and_then(|vm| vm.size) == Some(size);
    facts.image.build == target.image.build && options.size.is_none_or(has)
}

/// The name of a VM without what [`new_name`] adds.
pub(crate) fn base_of(name: &str) -> &str {
    fn without_build(name: &str) -> Option<&str> {
        let is_build = |end: &str| end.len() == 7 && end.chars().all(|digit| digit.is_ascii_hexdigit());
        name.rsplit_once('-').filter(|(_, end)| is_build(end)).map(|(base, _)| base)
    }
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
    let is_size = |end: &str| end.split_once('x').is_some_and(|(one, other)| is_number(one) && is_number(other));
    let without_size = name.rsplit_once('-').filter(|(_, end)| is_size(end)).and_then(|(rest, _)| without_build(rest));
    without_size.or_else(|| without_build(name)).unwrap_or(name)
}

/// The name of a node's new VM: that of the old one without its build, and the new build. Names that an operator has
/// kept apart stay apart. If the result is the old name, because the image stays, the size is added.
pub(super) fn new_name(old: &str, target: &Target, options: &Options) -> String {
    let name = format!("{}-{}", base_of(old), target.image.short());
    match options.size {
        Some(size) if name == old => format!("{name}-{}x{}", size.processors, size.memory),
        _ => name,
    }
}
