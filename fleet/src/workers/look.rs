//! Looks at what is there.

use std::collections::BTreeMap;

use super::cluster::Cluster;
use super::machine::State;
use super::records::Kept;
use super::seen::{Found, Node, Seen};
use super::trouble::Trouble;
use crate::hypervisor::{Hypervisor, PowerState, Vm};

/// Looks at VMs and nodes, and at the pods and volumes of those that leave. What cannot be seen is never taken for absent: then
/// there is no look at all.
pub(super) async fn look(
    hypervisor: &dyn Hypervisor,
    cluster: &dyn Cluster,
    kept: &Kept,
    now: u64,
) -> Result<Seen, Trouble> {
    let mut vms = hypervisor.vms().await?;
    for machine in &kept.machines {
        let Some(noted) = machine.noted() else { continue };
        if !vms.iter().any(|vm| vm.uuid() == noted) {
            // Moved out of the folders that are searched, or restamped: it is not gone.
            let copies = hypervisor.with_bios_uuid(noted).await?.into_iter();
            let others = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment != hypervisor.deployment());
            vms.extend(copies.filter(|vm| !others(vm)));
        }
    }
    let mut said_of = BTreeMap::new();
    let nodes = cluster.nodes().await.map_err(Trouble::api)?;
    let mut seen = Seen { now, vms, nodes, ..Seen::default() };
    for machine in kept.machines.iter().filter(|machine| !seen.is_ready(machine)) {
        let Found::Vm(vm) = seen.vm(machine) else { continue };
        // It only says why: what it does not say is seen otherwise, later.
        if vm.power == PowerState::On
            && let Ok(Some(said)) = hypervisor.statement(&vm.reference).await
        {
            said_of.insert(machine.name.clone(), said);
        }
    }
    seen.said = said_of;
    for machine in kept.machines.iter().filter(|machine| machine.state == State::Leaving) {
        let (name, node) = (machine.name.clone(), seen.node(machine));
        let (is_own, is_foreign) = (matches!(node, Node::Own(_)), matches!(node, Node::Foreign));
        if is_own {
            seen.pods.insert(name.clone(), cluster.pods(&name).await.map_err(Trouble::api)?);
            seen.announced.insert(name.clone(), cluster.announced(&name).await.map_err(Trouble::api)?);
        }
        // Volumes name their node also where somebody has removed that.
        if !is_foreign {
            seen.claims.insert(name.clone(), cluster.local_claims(&name).await.map_err(Trouble::api)?);
        }
    }
    Ok(seen)
}
