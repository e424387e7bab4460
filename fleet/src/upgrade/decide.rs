//! Decides an upgrade: a pure function from the inventory and the options to a plan.

use std::collections::BTreeSet;

use contract::properties::ControlNode;
use uuid::Uuid;

use super::cluster_seen::SeenNode;
use super::inventory::Inventory;
use super::judge;
use super::plan::{Action, Mode, Options, Plan, PlannedNode, Step, is_there, new_name};
use super::refusal::{Refusal, Refusals};
use super::target::Target;
use crate::hypervisor::{DiskRef, Vm};

/// Decides an upgrade. `id` is random.
pub fn plan(inventory: &Inventory, target: &Target, options: &Options, id: Uuid) -> Result<Plan, Refusals> {
    let judged = judge::judge(inventory, target, options);
    if !judged.refusals.is_empty() {
        return Err(Refusals(judged.refusals));
    }
    let mut nodes: Vec<PlannedNode> =
        inventory.cluster.nodes.iter().filter_map(|node| planned(inventory, node, (target, options), id)).collect();
    if nodes.is_empty() {
        let with = options.size.map(|size| format!(", with {size}")).unwrap_or_default();
        let reason = format!("every control-plane node runs {} already{with}", target.image);
        return Err(Refusals(vec![Refusal { code: super::refusal::NOTHING, subject: "the OVA".to_owned(), reason }]));
    }
    // Followers first; the sort keeps the order of names.
    nodes.sort_by_key(|node| (node.leads, node.holds_address));
    let steps = forward(options, nodes.len());
    let (other_vms, other_disks) = others(inventory, &nodes);
    // Whichever cluster the disks were of: they hold its Secrets, and no other record names them.
    let other_copies = inventory.cluster.earlier.as_ref().map(|earlier| earlier.copies.clone()).unwrap_or_default();
    let (target, options) = (target.clone(), options.clone());
    let member = |node: &SeenNode| ControlNode { name: node.name.clone(), address: node.address };
    Ok(Plan {
        id,
        deployment: inventory.deployment,
        cluster: inventory.cluster.id,
        members: inventory.cluster.nodes.iter().map(member).collect(),
        target,
        options,
        grounds: judged.grounds,
        nodes,
        other_vms,
        other_disks,
        other_copies,
        steps,
    })
}

/// The node's part. `None` if it runs the image already, in a VM of the desired size.
fn planned(
    inventory: &Inventory,
    node: &SeenNode,
    (target, options): (&Target, &Options),
    id: Uuid,
) -> Option<PlannedNode> {
    let facts = node.facts.as_ref().ok()?;
    let vm = vm_of(inventory, node)?;
    if is_there(facts, Some(vm), target, options) {
        return None;
    }
    let etcd = facts.etcd.as_ref()?;
    Some(PlannedNode {
        name: node.name.clone(),
        address: node.address,
        old: vm.uuid(),
        old_name: vm.name.clone(),
        new_name: new_name(&vm.name, target, options),
        disk: vm.data_disks().next()?.reference.clone(),
        adapters: vm.adapters.iter().filter(|adapter| adapter.connected).map(|adapter| adapter.key.clone()).collect(),
        identity: facts.disk,
        member: etcd.member.clone(),
        from: facts.image.build(),
        pinned: facts.pinned.clone(),
        swap: Uuid::new_v5(&id, node.name.as_bytes()),
        cordoned: facts.pods.as_ref().and_then(|pods| pods.cordoned).unwrap_or_default(),
        leads: etcd.leader,
        holds_address: facts.virtual_address.as_ref().is_some_and(|address| address.held),
    })
}

/// The VM that a node runs in.
fn vm_of<'i>(inventory: &'i Inventory, node: &SeenNode) -> Option<&'i Vm> {
    let facts = node.facts.as_ref().ok()?;
    inventory.vms_of(facts.holder).into_iter().next()
}

/// The deployment's VMs and data disks that belong to no planned node. They belong to nodes that stay as they are, or
/// to earlier upgrades of this cluster. Those of another cluster may have another owner now. Of VMs from earlier
/// upgrades only existing ones count, also out of sight: the others went with a commit or a rollback.
fn others(inventory: &Inventory, planned: &[PlannedNode]) -> (BTreeSet<Uuid>, Vec<DiskRef>) {
    let stays = |node: &&SeenNode| planned.iter().all(|it| it.name != node.name);
    let nodes = inventory.cluster.nodes.iter().filter(stays);
    let staying: Vec<&Vm> = nodes.filter_map(|node| vm_of(inventory, node)).collect();
    let earlier = inventory.cluster.earlier.as_ref().filter(|earlier| earlier.cluster == inventory.cluster.id);
    let noted = earlier.into_iter().flat_map(|earlier| &earlier.vms).copied();
    let is_left = |uuid: &Uuid| inventory.vms.iter().any(|vm| vm.uuid() == *uuid) || inventory.moved.contains_key(uuid);
    let left = noted.filter(is_left);
    let is_planned = |uuid: &Uuid| planned.iter().any(|node| node.old == *uuid);
    let vms = staying.iter().map(|vm| vm.uuid()).chain(left).filter(|uuid| !is_planned(uuid)).collect();
    let held = staying.iter().flat_map(|vm| vm.data_disks()).map(|disk| &disk.reference);
    let mut disks: Vec<DiskRef> = Vec::new();
    for disk in held.chain(earlier.into_iter().flat_map(|earlier| &earlier.disks)) {
        let mut known = planned.iter().map(|node| &node.disk).chain(&disks);
        if known.all(|known| known.uuid != disk.uuid) {
            disks.push(disk.clone());
        }
    }
    (vms, disks)
}

fn forward(options: &Options, nodes: usize) -> Vec<Step> {
    use Action::{Attach, CloneVm, Copy, Detach, Fence, Gate, PowerOn, Prepare, ShutDown, Snapshot, Verify};
    const SWAP: [Action; 9] = [CloneVm, Prepare, ShutDown, Fence, Detach, Copy, Attach, PowerOn, Gate];
    let copies = options.copy_disks;
    let swap = || SWAP.into_iter().filter(move |action| copies || *action != Copy);
    let mut steps = vec![Step::whole(Verify), Step::whole(Snapshot)];
    match options.mode {
        Mode::Rolling => {
            for node in 0..nodes {
                steps.extend(swap().map(|action| Step::of(action, node)));
            }
        }
        // Nodes are not prepared: each would refuse while another one is being swapped. A clean
        // shutdown releases the disk for any image that suits.
        Mode::AllAtOnce => {
            for action in swap().filter(|action| *action != Prepare) {
                steps.extend((0..nodes).map(|node| Step::of(action, node)));
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests;
