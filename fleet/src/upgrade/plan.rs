//! The plan of an upgrade: a pure function of what is there and what is wanted.
//! It is a straight list of steps, saved before the first one is taken.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::inventory::Inventory;
use super::judge::{self, Ground};
use super::refusal::{Refusal, Refusals};
use super::target::Target;
use super::wire::Build;

/// In which order nodes are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One after the other, each found good before the next.
    Rolling,
    /// All off, all on.
    AllAtOnce,
}

/// What the operator wants beside the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// In which order.
    pub mode: Mode,
    /// How long a swapped node may take to be found good, in seconds; then everything goes back.
    pub gate_seconds: u64,
    /// How long pods may take to move away from a node, in seconds.
    pub drain_seconds: u64,
    /// Whether an older image is meant.
    pub downgrade: bool,
    /// Fingerprint of the key that must have signed the OVA and is pinned at the commit, in place of the cluster's.
    pub publisher: Option<String>,
}

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// BIOS UUID of the VM that it runs in.
    pub old: Uuid,
    /// That VM's name.
    pub old_name: String,
    /// Name of the VM that takes its place.
    pub new_name: String,
    /// The disk that moves, as the hypervisor calls it.
    pub disk: Uuid,
    /// The disk's identity, as the node calls it.
    pub identity: Uuid,
    /// Its member of etcd, hexadecimal.
    pub member: String,
    /// The image that it runs before.
    pub from: Build,
    /// Fingerprint of the publisher's key that is pinned there before.
    #[serde(default)]
    pub pinned: Option<String>,
    /// The name of its swap.
    pub swap: Uuid,
    /// Whether it leads etcd when the plan is made.
    pub leads: bool,
    /// Whether it holds the virtual address when the plan is made.
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

/// The plan of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name: that of the journal, too.
    pub id: Uuid,
    /// The cluster: UID of the namespace kube-system.
    pub cluster: Uuid,
    /// The image.
    pub target: Target,
    /// What was wanted.
    pub options: Options,
    /// What it rests on, for people.
    pub grounds: Vec<Ground>,
    /// The nodes in the order in which they are swapped.
    pub nodes: Vec<PlannedNode>,
    /// The way forward.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Where the OVA was when the plan was made.
    pub fn ova(&self) -> &PathBuf {
        &self.target.ova
    }
}

/// Decides an upgrade. `id` is random.
///
/// # Errors
/// All reasons why it must not be.
pub fn plan(inventory: &Inventory, target: &Target, options: &Options, id: Uuid) -> Result<Plan, Refusals> {
    let judged = judge::judge(inventory, target, options);
    if !judged.refusals.is_empty() {
        return Err(Refusals(judged.refusals));
    }
    let mut nodes: Vec<PlannedNode> =
        inventory.nodes.iter().filter_map(|node| planned(inventory, node, target, id)).collect();
    if nodes.is_empty() {
        let reason = format!("every control node runs {} already", target.image);
        return Err(Refusals(vec![Refusal { code: super::refusal::NOTHING, subject: "the OVA".to_owned(), reason }]));
    }
    // Followers first; the sort keeps the order of names.
    nodes.sort_by_key(|node| (node.leads, node.holds_address));
    let steps = forward(options.mode, nodes.len());
    let (target, options) = (target.clone(), options.clone());
    Ok(Plan { id, cluster: inventory.cluster, target, options, grounds: judged.grounds, nodes, steps })
}

/// The node's part; none when it runs the image already.
fn planned(inventory: &Inventory, node: &super::inventory::SeenNode, target: &Target, id: Uuid) -> Option<PlannedNode> {
    let facts = node.facts.as_ref().ok()?;
    if facts.image.build == target.image.build {
        return None;
    }
    let vm = inventory.vms.iter().find(|vm| Some(vm.uuid) == facts.holder)?;
    let etcd = facts.etcd.as_ref()?;
    Some(PlannedNode {
        name: node.name.clone(),
        address: node.address,
        old: vm.uuid,
        old_name: vm.name.clone(),
        new_name: new_name(&node.name, target),
        disk: *vm.disks.first()?,
        identity: facts.disk,
        member: etcd.member.clone(),
        from: facts.image.build(),
        pinned: facts.pinned.clone(),
        swap: Uuid::new_v5(&id, node.name.as_bytes()),
        leads: etcd.leader,
        holds_address: facts.virtual_address.as_ref().is_some_and(|address| address.held),
    })
}

/// The name of a node's new VM: node and build.
pub(super) fn new_name(node: &str, target: &Target) -> String {
    format!("{node}-{}", target.image.short())
}

fn forward(mode: Mode, nodes: usize) -> Vec<Step> {
    use Action::{Attach, Detach, Fence, Gate, Import, PowerOn, Prepare, ShutDown, Snapshot, Verify};
    const SWAP: [Action; 7] = [Prepare, ShutDown, Fence, Detach, Attach, PowerOn, Gate];
    let whole = |action| Step { action, node: None };
    let of = |action, node| Step { action, node: Some(node) };
    let mut steps = vec![whole(Verify), whole(Snapshot)];
    match mode {
        Mode::Rolling => {
            for node in 0..nodes {
                steps.extend([Import].into_iter().chain(SWAP).map(|action| of(action, node)));
            }
        }
        // Nodes are not prepared: each would refuse while another one is being swapped. A clean
        // shutdown releases the disk for any image that suits.
        Mode::AllAtOnce => {
            for action in [Import].into_iter().chain(SWAP).filter(|action| *action != Prepare) {
                steps.extend((0..nodes).map(|node| of(action, node)));
            }
        }
    }
    steps
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;
