//! Looks at what is there.

use std::collections::BTreeSet;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::guests::Guests;
use super::kept::{Goal, Kept, Node};
use super::seen::{Found, Said, Seen};
use crate::hypervisor::{Hypervisor, PowerState, Vm};
use crate::workers::Trouble;

/// Looks at the VMs, and asks the nodes once all of them are on. What cannot be seen is never taken for absent: then there
/// is no look at all. `upgraded` are the cluster's VMs that an upgrade has noted. With what was seen comes the kubeconfig that a node
/// has given.
pub(super) async fn look(
    hypervisor: &dyn Hypervisor,
    guests: &dyn Guests,
    kept: &Kept,
    upgraded: &BTreeSet<Uuid>,
) -> Result<(Seen, Option<Zeroizing<String>>), Trouble> {
    let mut seen = Seen { vms: hypervisor.vms().await?, upgraded: upgraded.clone(), ..Seen::default() };
    if kept.goal == Goal::Gone {
        return Ok((seen, None));
    }
    let named = |earlier: bool| kept.granted.iter().filter(move |vm| vm.earlier == earlier).map(|vm| vm.vm);
    let swapped = upgraded.iter().copied().filter(|_| kept.goal == Goal::Down);
    let noted: BTreeSet<Uuid> = kept.nodes.iter().filter_map(Node::noted).chain(named(false)).chain(swapped).collect();
    for uuid in noted.iter().copied().chain(named(true).filter(|uuid| !noted.contains(uuid))) {
        if seen.vms.iter().any(|vm| vm.uuid() == uuid) {
            continue;
        }
        // Moved out of the folders that are searched, or restamped: it is not gone.
        for vm in hypervisor.with_bios_uuid(uuid).await? {
            let is_the_clusters = match &vm.stamp {
                Some(stamp) => stamp.deployment == hypervisor.deployment(),
                // Who has named a VM once, and then taken its stamp away, has taken that back.
                None => noted.contains(&uuid),
            };
            let met = if is_the_clusters { &mut seen.vms } else { &mut seen.bystanders };
            met.push(vm);
        }
    }
    let mut given = None;
    let on: Vec<(&Node, Vm)> = kept.nodes.iter().filter_map(|node| Some((node, running(kept, node, &seen)?))).collect();
    if kept.goal == Goal::Up && on.len() == kept.nodes.len() {
        let mut shown = Vec::new();
        for (node, vm) in on {
            let of_node = hypervisor.fingerprints(&vm.reference).await?;
            seen.shown.extend(of_node.map(|shown| (node.name.clone(), shown.authority)));
            shown.push((node, of_node));
        }
        // Nobody is asked by what may lead to another cluster: before one is pinned, all have to show the same authority.
        let is_one = seen.strange_authority(kept).is_none() && (kept.formed || seen.authority(kept).is_some());
        for (node, of_node) in shown {
            let said = match of_node {
                None => Said::Nothing("its cluster has not formed yet".to_owned()),
                Some(_) if !is_one => Said::Nothing("not all nodes show the same cluster yet".to_owned()),
                Some(of_node) => match guests.kubeconfig(node.address, &of_node).await {
                    Ok(kubeconfig) => {
                        given.get_or_insert(kubeconfig);
                        Said::Formed
                    }
                    Err(error) => Said::Nothing(format!("{error:#}")),
                },
            };
            seen.said.insert(node.name.clone(), said);
        }
    }
    if let Some(kubeconfig) = &given {
        seen.ready = Some(guests.ready(kubeconfig).await.map_err(|error| format!("{error:#}")));
    }
    Ok((seen, given))
}

/// A node's VM, if that is on.
fn running(kept: &Kept, node: &Node, seen: &Seen) -> Option<Vm> {
    match if kept.formed { seen.later_vm(node) } else { seen.first_vm(node) } {
        Found::Vm(vm) if vm.power == PowerState::On => Some(vm.clone()),
        _ => None,
    }
}
