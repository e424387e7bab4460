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
/// is no look at all. `upgraded` are the VMs that an upgrade has noted. With what was seen comes the kubeconfig that a node has given.
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
    for noted in kept.nodes.iter().filter_map(Node::noted) {
        if !seen.vms.iter().any(|vm| vm.uuid() == noted) {
            // Moved out of the folders that are searched, or restamped: it is not gone.
            let copies = hypervisor.with_bios_uuid(noted).await?.into_iter();
            let others = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment != hypervisor.deployment());
            seen.vms.extend(copies.filter(|vm| !others(vm)));
        }
    }
    let mut given = None;
    let on: Vec<(&Node, Vm)> = kept.nodes.iter().filter_map(|node| Some((node, running(kept, node, &seen)?))).collect();
    if kept.goal == Goal::Up && on.len() == kept.nodes.len() {
        for (node, vm) in on {
            let said = match asked(hypervisor, guests, node, &vm).await? {
                Ok(kubeconfig) => {
                    given.get_or_insert(kubeconfig);
                    Said::Formed
                }
                Err(why) => Said::Nothing(why),
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

/// What a node gives; or why nothing.
async fn asked(
    hypervisor: &dyn Hypervisor,
    guests: &dyn Guests,
    node: &Node,
    vm: &Vm,
) -> Result<Result<Zeroizing<String>, String>, Trouble> {
    let Some(shown) = hypervisor.fingerprints(&vm.reference).await? else {
        return Ok(Err("its cluster has not formed yet".to_owned()));
    };
    Ok(guests.kubeconfig(node.address, &shown).await.map_err(|error| format!("{error:#}")))
}
