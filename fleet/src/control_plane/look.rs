//! Reads the present state.

use std::collections::BTreeSet;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::deployment_record::{DeploymentRecord, Lifecycle, Node};
use super::guests::Guests;
use super::inventory::{Found, Inventory, NodeReport};
use super::reason;
use super::wait::Wait;
use crate::engine::ActionError;
use crate::hypervisor::{Absence, Error, ErrorKind, Hypervisor, LastSeen, PowerState, Vm, doubles};
use crate::nodes::Answered;
use crate::timestamp;
use crate::upgrade::UpgradeSummary;

/// Reads the VMs, and asks the nodes once all of them are on. In a formed cluster, asks those that are on. An unreadable VM is
/// never taken for absent: there is no inventory then. `upgraded` are an upgrade's records of the cluster. Also returns the
/// kubeconfig that a node gave.
pub(super) async fn look(
    hypervisor: &dyn Hypervisor,
    guests: &dyn Guests,
    kept: &DeploymentRecord,
    upgraded: Option<&UpgradeSummary>,
) -> Result<(Inventory, Option<Zeroizing<String>>), ActionError> {
    let swapped = upgraded.map(|noted| noted.vms.clone()).unwrap_or_default();
    let vms = hypervisor.vms().await?;
    let mut seen = Inventory { vms, upgraded: swapped.clone(), now: timestamp::now(), ..Inventory::default() };
    if kept.lifecycle == Lifecycle::Deleted {
        return Ok((seen, None));
    }
    let named = |earlier: bool| kept.adopted_vms.iter().filter(move |vm| vm.earlier == earlier).map(|vm| vm.bios_uuid);
    let swapped = swapped.into_iter().filter(|_| kept.lifecycle == Lifecycle::Deleting);
    let noted: BTreeSet<Uuid> = kept.nodes.iter().filter_map(Node::noted).chain(named(false)).chain(swapped).collect();
    if kept.lifecycle == Lifecycle::Deleting {
        // A copy in a searched folder is found below, as one elsewhere is.
        seen.vms.retain(|vm| !noted.contains(&vm.uuid()) || !is_copy(kept, upgraded, vm));
    }
    let mut unreadable = Vec::new();
    for uuid in noted.iter().copied().chain(named(true).filter(|uuid| !noted.contains(uuid))) {
        if seen.vms.iter().any(|vm| vm.uuid() == uuid) {
            continue;
        }
        // A VM that was moved out of the searched folders, or restamped, is not gone.
        let found = match hypervisor.with_bios_uuid(uuid).await {
            Ok(found) => found,
            Err(error) if kept.lifecycle == Lifecycle::Active && kept.formed => {
                unreadable.push((uuid, unread(uuid, &error)));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for vm in found {
            let is_noted = noted.contains(&uuid);
            let may_be_its = vm.is_of(hypervisor.deployment()) || (vm.stamp.is_none() && is_noted);
            if may_be_its && is_copy(kept, upgraded, &vm) {
                seen.replicas.push(vm.reference.clone());
                seen.bystanders.push(vm);
                continue;
            }
            let met = match &vm.stamp {
                Some(stamp) if stamp.deployment == hypervisor.deployment() => &mut seen.vms,
                // A copy has disks with other UUIDs.
                Some(_) if is_noted && holds_own(kept, upgraded, &vm) => &mut seen.restamped,
                // If an operator named a VM in an earlier command, and then removed its stamp, it is no longer named.
                None if is_noted => &mut seen.vms,
                _ => &mut seen.bystanders,
            };
            met.push(vm);
        }
    }
    if kept.lifecycle == Lifecycle::Active && kept.formed {
        add_swapped(hypervisor, kept, upgraded, &mut seen).await;
        seen.stale = kept.nodes.iter().filter_map(|node| stale(kept, upgraded, node, &seen)).collect();
        // An unreadable VM only keeps the present VM of its node as it is. If its node has no VM in sight, or one from before an
        // upgrade, the node waits.
        for (uuid, why) in unreadable {
            match now_in(kept, uuid, &seen).filter(|now| !seen.stale.contains(now)) {
                Some(now) => drop(seen.unclear.insert(now, why)),
                None => hide(kept, uuid, &why, &mut seen),
            }
        }
    }
    if kept.lifecycle == Lifecycle::Active {
        add_unread(hypervisor, kept, &mut seen).await;
    }
    if kept.lifecycle == Lifecycle::Deleting {
        seen.unproved = unproved(hypervisor, kept, upgraded, &seen).await?;
    }
    if kept.lifecycle == Lifecycle::Active {
        let is_replaced = |vm: &mut Vm| kept.replaced_vms.contains(&vm.uuid());
        seen.replaced = seen.vms.extract_if(.., is_replaced).collect();
    }
    add_doubles(hypervisor, kept, upgraded, &mut seen).await;
    let mut given = None;
    let on: Vec<(&Node, Vm)> = kept.nodes.iter().filter_map(|node| Some((node, running(kept, node, &seen)?))).collect();
    // One node of a formed cluster is enough.
    let is_asked = if kept.formed { !on.is_empty() } else { on.len() == kept.nodes.len() };
    if kept.lifecycle == Lifecycle::Active && is_asked {
        let mut shown = Vec::new();
        for (node, vm) in on {
            let of_node = hypervisor.fingerprints(&vm.reference).await?;
            seen.shown.extend(of_node.map(|shown| (node.name.clone(), shown.ca)));
            shown.push((node, of_node));
        }
        // No node is asked with fingerprints that may lead to another cluster: before a CA is recorded, all nodes must show the
        // same one.
        let is_one = seen.strange_authority(kept).is_none() && (kept.formed || seen.authority(kept).is_some());
        for (node, of_node) in shown {
            let said = match of_node {
                None => NodeReport::Nothing("its cluster has not formed yet".to_owned()),
                Some(_) if !is_one => NodeReport::Nothing("not all nodes show the same cluster yet".to_owned()),
                Some(of_node) => match guests.kubeconfig(node.address, &of_node).await {
                    Ok(kubeconfig) => {
                        given.get_or_insert(kubeconfig);
                        NodeReport::Formed
                    }
                    Err(error) => NodeReport::Nothing(format!("{error:#}")),
                },
            };
            seen.said.insert(node.name.clone(), said);
        }
    }
    if let Some(kubeconfig) = &given {
        seen.ready = Some(guests.ready(kubeconfig).await.map_err(|error| unready(&error, kept.formed)));
    }
    Ok((seen, given))
}

/// Why the API server did not list the nodes. A new cluster refuses its deployer until a node has granted the rights.
fn unready(error: &anyhow::Error, has_formed: bool) -> String {
    match error.downcast_ref::<Answered>().and_then(|answered| answered.status) {
        Some(401 | 403) if !has_formed => "the API server does not accept the administrator yet".to_owned(),
        _ => format!("{error:#}"),
    }
}

/// The waits for VMs of nodes that vCenter does not show and nothing proves gone. If they ran, others would get their addresses.
/// VMs whose removal was requested, or that the last upgrade destroyed, are left out. A VM that was never on is gone if the
/// inventory lacks it.
async fn unproved(
    hypervisor: &dyn Hypervisor,
    kept: &DeploymentRecord,
    upgraded: Option<&UpgradeSummary>,
    seen: &Inventory,
) -> Result<Vec<Wait>, ActionError> {
    // The last upgrade and the last command of this kind have each noted a place. Which is newer is not known.
    let places = |vm: Uuid| {
        let noted = [kept.places.get(&vm), upgraded.and_then(|noted| noted.places.get(&vm))];
        noted.into_iter().flatten()
    };
    // A replica, or a copy that another deployment has, shares its BIOS UUID with a VM that may run elsewhere.
    let is_itself = |vm: &&Vm| {
        let is_there = places(vm.uuid()).any(|place| vm.settings.as_ref() == Some(&place.settings));
        !seen.replicas.contains(&vm.reference) && (is_there || !vm.is_anothers(hypervisor.deployment()))
    };
    let bystanders = seen.bystanders.iter().filter(is_itself);
    let met = seen.vms.iter().chain(&seen.restamped).chain(bystanders).map(Vm::uuid);
    let mut gone: BTreeSet<Uuid> = met.chain(kept.deleting_vms.iter().map(|gone| gone.uuid)).collect();
    gone.extend(upgraded.iter().flat_map(|noted| &noted.removed));
    // They were proved not to run when their nodes were replaced.
    gone.extend(kept.replaced_vms.iter());
    // At the last upgrade another VM held the node's data disk: an earlier upgrade has destroyed this one. That is known of first
    // VMs alone. A VM that an earlier upgrade made is proved gone by its place.
    let is_swapped = |node: &Node, vm: &Uuid| {
        let was_planned = |it: &UpgradeSummary| node.own_disk().is_some_and(|disk| it.planned.contains(&disk));
        upgraded.is_some_and(|it| was_planned(it) && !it.vms.contains(vm))
    };
    let started = |vm: &Uuid| kept.nodes.iter().find(|node| node.ever_powered_on && node.bios_uuid == Some(*vm));
    let is_left = |vm: &Uuid| !gone.contains(vm) && !started(vm).is_some_and(|node| is_swapped(node, vm));
    let noted = kept.nodes.iter().filter(|node| node.ever_powered_on).filter_map(|node| node.bios_uuid);
    let noted = noted.chain(kept.places.keys().copied()).chain(seen.upgraded.iter().copied());
    let missing: BTreeSet<Uuid> = noted.filter(is_left).collect();
    let nodes: Vec<&str> = kept.nodes.iter().map(|node| &*node.name).collect();
    let mut unproved = Vec::new();
    for vm in missing {
        let mut at: Vec<(&str, LastSeen<'_>)> =
            places(vm).map(|place| (&*place.node, LastSeen::At(&place.settings, place.datastore.as_deref()))).collect();
        if at.is_empty() {
            let was_on = started(&vm).is_some() || !upgraded.is_some_and(|it| it.never_on.contains(&vm));
            let node = started(&vm).map_or(&*kept.cluster, |node| &node.name);
            at.push((node, if was_on { LastSeen::Unnoted } else { LastSeen::NeverOn }));
        }
        for (node, at) in at {
            let (lasting, why) = match hypervisor.absence(vm, &nodes, at).await {
                Ok(Absence::Gone) => continue,
                Ok(Absence::Unknown(why)) => (true, why),
                // A failure for one VM does not stop the others.
                Err(error) if error.kind != ErrorKind::Fenced => {
                    (error.kind != ErrorKind::Transient, error.to_string())
                }
                Err(error) => return Err(error.into()),
            };
            let words = format!("its VM is not shown, and may run: {why}");
            unproved.push(Wait { lasting, ..Wait::passing(node, reason::VM_STATE, words) });
        }
    }
    Ok(unproved)
}

/// Adds VMs that upgrades created and that were moved out of the searched folders, for nodes without a VM in sight. Such a node
/// may run in one of them, and the VM that was recorded at its creation may be gone for good.
///
/// A VM counts if it is stamped as the node's and holds a disk of the cluster or none at all. Any other one, such as an earlier
/// VM that a backup restored, is ignored. If such a VM is in a searched folder, the node's own VM is still searched.
async fn add_swapped(
    hypervisor: &dyn Hypervisor,
    kept: &DeploymentRecord,
    upgraded: Option<&UpgradeSummary>,
    seen: &mut Inventory,
) {
    let is_lost = |node: &&Node| match seen.later_vm(node) {
        Found::Nothing => true,
        Found::Vm(vm) => vm.power != PowerState::On && !may_be_nodes(kept, upgraded, vm),
        Found::Half(_) | Found::Odd => false,
    };
    let lost: Vec<&Node> = kept.nodes.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return;
    }
    let deployment = hypervisor.deployment();
    for uuid in seen.upgraded.clone() {
        if seen.vms.iter().any(|vm| vm.uuid() == uuid) {
            continue;
        }
        match hypervisor.with_bios_uuid(uuid).await {
            Ok(found) => {
                seen.vms.extend(found.into_iter().filter(|vm| is_of_one(&lost, vm, deployment, kept, upgraded)));
            }
            // Only lost nodes wait.
            Err(error) => hide(kept, uuid, &unread(uuid, &error), seen),
        }
    }
}

/// Hides nodes without a VM in sight if an unreadable VM may be theirs. vCenter may not find such a VM by its BIOS UUID.
async fn add_unread(hypervisor: &dyn Hypervisor, kept: &DeploymentRecord, seen: &mut Inventory) {
    for node in kept.nodes.iter().filter(|node| node.noted().is_some()) {
        let found = if kept.formed { seen.later_vm(node) } else { seen.first_vm(node) };
        if !matches!(found, Found::Nothing) || seen.hidden.contains_key(&node.name) {
            continue;
        }
        let why = match hypervisor.unread(&[&node.name]).await {
            Ok(None) => continue,
            Ok(Some(why)) => why,
            Err(error) => format!("{:#}", error.source),
        };
        seen.hidden.insert(node.name.clone(), why);
    }
}

/// Records why it is unknown whether a node is in the VM with this BIOS UUID. This applies to the node that the UUID was recorded
/// for. If it was recorded for no node, this applies to each node.
fn hide(kept: &DeploymentRecord, uuid: Uuid, why: &str, seen: &mut Inventory) {
    let is_known = kept.nodes.iter().any(|node| node.has_noted(uuid));
    let whose = kept.nodes.iter().filter(|node| !is_known || node.has_noted(uuid));
    seen.hidden.extend(whose.map(|node| (node.name.clone(), why.to_owned())));
}

/// Describes a recorded VM that cannot be read.
fn unread(uuid: Uuid, error: &Error) -> String {
    format!("what has the BIOS UUID {uuid}, which was noted for this cluster: {:#}", error.source)
}

/// Adds VMs elsewhere with the BIOS UUID of a VM that may be powered on or removed: the found one may be a copy.
///
/// A replica of backup software is not added. That is a VM that is off and holds other disks, while the found one holds the
/// cluster's disk or has already released it.
async fn add_doubles(
    hypervisor: &dyn Hypervisor,
    kept: &DeploymentRecord,
    upgraded: Option<&UpgradeSummary>,
    seen: &mut Inventory,
) {
    let now = &*seen;
    let may_change: Vec<Vm> = match kept.lifecycle {
        Lifecycle::Active => {
            let found = kept.nodes.iter().filter_map(|node| its_vm(kept, node, now));
            found.filter(|vm| vm.power == PowerState::Off).cloned().collect()
        }
        Lifecycle::Deleting => now.vms.iter().filter(|vm| now.is_noted(kept, vm)).cloned().collect(),
        Lifecycle::Deleted => Vec::new(),
    };
    for vm in &may_change {
        let is_sure = may_be_nodes(kept, upgraded, vm);
        let is_doubtful = |other: &Vm| !is_sure || other.power != PowerState::Off || holds_own(kept, upgraded, other);
        match doubles(hypervisor, vm).await {
            Ok(found) => seen.doubles.extend(found.into_iter().filter(is_doubtful)),
            // An unreadable VM only keeps this VM as it is.
            Err(error) => drop(seen.unclear.insert(vm.uuid(), format!("{:#}", error.source))),
        }
    }
}

/// Whether a VM elsewhere with a node's BIOS UUID is a copy of that node's VM, from backup software. It is off, and its disks
/// are others.
///
/// This is known only if the node is known to be in another VM. Either an upgrade has swapped its nodes, and recorded the node's
/// data disk (see [`holds_own`]). Or the cluster is removed, and the removal of another VM with this BIOS UUID was requested.
/// Then the copy may also hold no data disk.
pub(super) fn is_copy(kept: &DeploymentRecord, upgraded: Option<&UpgradeSummary>, vm: &Vm) -> bool {
    let is_of_others = match kept.lifecycle {
        Lifecycle::Active => kept.formed && upgraded.is_some() && !may_be_nodes(kept, upgraded, vm),
        Lifecycle::Deleting => {
            // A VM that an operator named was shown with its disks.
            let is_earlier = upgraded.is_some() && vm.data_disks().next().is_some() && !kept.is_granted(vm.uuid());
            let is_other = is_earlier || kept.deleting_vms.iter().any(|gone| vm.is_double_of(gone));
            // The hypervisor may have given it another ID: a VM that is recorded itself is no copy of its former ID.
            !holds_own(kept, upgraded, vm) && !kept.deleting_vms.contains(&vm.reference) && is_other
        }
        Lifecycle::Deleted => false,
    };
    is_of_others && vm.power == PowerState::Off
}

/// Whether a VM that is not in sight carries the stamp of one of these nodes, and may be its VM by the disks.
pub(super) fn is_of_one(
    nodes: &[&Node],
    vm: &Vm,
    deployment: Uuid,
    kept: &DeploymentRecord,
    upgraded: Option<&UpgradeSummary>,
) -> bool {
    vm.is_of(deployment) && nodes.iter().any(|node| node.owns(vm)) && may_be_nodes(kept, upgraded, vm)
}

/// Whether a VM with a node's stamp may be its VM by the disks: it holds one of the cluster's, or none at all.
fn may_be_nodes(kept: &DeploymentRecord, upgraded: Option<&UpgradeSummary>, vm: &Vm) -> bool {
    vm.data_disks().next().is_none() || holds_own(kept, upgraded, vm)
}

/// Whether a VM with a node's BIOS UUID holds a disk of the cluster. Any data disk counts if the node's own one was never
/// recorded, neither at its creation nor by an upgrade. That happens if the node was not in the cluster at the last upgrade.
fn holds_own(kept: &DeploymentRecord, upgraded: Option<&UpgradeSummary>, vm: &Vm) -> bool {
    let is_moved = |disk: Uuid| upgraded.is_some_and(|noted| noted.disks.iter().any(|moved| moved.uuid == disk));
    let is_own = |disk: Uuid| kept.is_own_disk(disk) || is_moved(disk);
    let is_of_upgrade = |node: &Node| upgraded.is_some_and(|noted| noted.nodes.contains(&node.name));
    let lacks_own = |node: &Node| node.has_noted(vm.uuid()) && node.own_disk().is_none() && !is_of_upgrade(node);
    let is_unclear = kept.nodes.iter().any(lacks_own);
    vm.disks.iter().any(|disk| is_own(disk.reference.uuid)) || (is_unclear && vm.data_disks().next().is_some())
}

/// The BIOS UUID of a node's VM that is off and holds data disks, but none of the cluster's, after an upgrade of its nodes. It
/// may be the VM from before the upgrade.
fn stale(kept: &DeploymentRecord, upgraded: Option<&UpgradeSummary>, node: &Node, seen: &Inventory) -> Option<Uuid> {
    let Found::Vm(vm) = seen.later_vm(node) else { return None };
    let is_stale = upgraded.is_some() && vm.power == PowerState::Off && !may_be_nodes(kept, upgraded, vm);
    is_stale.then(|| vm.uuid())
}

/// The BIOS UUID of the VM that a node of a formed cluster is in. `uuid` was recorded for the node, and an upgrade has swapped
/// that VM.
fn now_in(kept: &DeploymentRecord, uuid: Uuid, seen: &Inventory) -> Option<Uuid> {
    let node = kept.nodes.iter().find(|node| node.has_noted(uuid))?;
    match seen.later_vm(node) {
        Found::Vm(vm) => Some(vm.uuid()),
        Found::Nothing | Found::Half(_) | Found::Odd => None,
    }
}

fn running(kept: &DeploymentRecord, node: &Node, seen: &Inventory) -> Option<Vm> {
    its_vm(kept, node, seen).filter(|vm| vm.power == PowerState::On).cloned()
}

/// A node's VM, if there is exactly one.
fn its_vm<'s>(kept: &DeploymentRecord, node: &Node, seen: &'s Inventory) -> Option<&'s Vm> {
    match if kept.formed { seen.later_vm(node) } else { seen.first_vm(node) } {
        Found::Vm(vm) => Some(vm),
        Found::Nothing | Found::Half(_) | Found::Odd => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::nodes::Answer;

    #[test]
    fn missing_rights_are_expected_before_forming_ends() {
        let refused = |status| {
            let body = br#"{"kind":"Status","message":"nodes is forbidden"}"#.to_vec();
            let answered = Err::<(), _>(Answered::by("the API server", &Answer::of(status, body)));
            answered.context("listing the nodes").unwrap_err()
        };
        let early = "the API server does not accept the administrator yet";
        assert_eq!(unready(&refused(403), false), early);
        assert_eq!(unready(&refused(401), false), early);
        let later = unready(&refused(403), true);
        assert_eq!(later, "listing the nodes: the API server answered 403 Forbidden: nodes is forbidden");
        assert!(unready(&refused(503), false).contains("503 Service Unavailable"));
    }
}
