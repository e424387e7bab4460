//! Reads the present state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cluster::{Cluster, NodeSeen};
use super::copies::not_alone;
use super::inventory::{Inventory, Node, Observed};
use super::reason;
use super::records::PoolRecord;
use super::wait::Wait;
use super::worker_pool::Workers;
use super::worker_record::{State, WorkerRecord};
use crate::cancel::{Cancelled, LAST_LOOK, unless_cancelled};
use crate::engine::{ActionError, Reason, TO_END};
use crate::hypervisor::{Absence, Hypervisor, LastSeen, PowerState, Vm, doubles};
use crate::nodes::clean;

/// How long an inventory may take. Each request ends in seconds, and root in a tenant cluster controls how many there are.
const LIMIT: Duration = Duration::from_secs(300);

/// Reads VMs and nodes, and the pods and volumes of those that leave. An unreadable object is never taken for absent. Then there
/// is no inventory, and also if it takes too long.
pub(super) async fn look(workers: &Workers<'_>, kept: &PoolRecord) -> Result<Inventory, ActionError> {
    let limit = if *workers.cancelled.borrow() { LAST_LOOK } else { LIMIT };
    let seen = tokio::time::timeout(limit, looked(workers.hypervisor, workers.cluster, kept, (workers.clock)())).await;
    let endless =
        || Reason::new(reason::API, format!("VMs, nodes and pods were not looked at within {} s", limit.as_secs()));
    seen.unwrap_or_else(|_| Err(ActionError::Later(endless())))
}

/// As [`look`], but ends if the command is cancelled.
pub(super) async fn look_or_end(workers: &Workers<'_>, kept: &PoolRecord) -> Result<Inventory, ActionError> {
    unless_cancelled(&workers.cancelled, look(workers, kept))
        .await
        .map_err(|Cancelled| ActionError::Later(Reason::new(reason::API, TO_END)))?
}

async fn looked(
    hypervisor: &dyn Hypervisor,
    cluster: &dyn Cluster,
    kept: &PoolRecord,
    now: u64,
) -> Result<Inventory, ActionError> {
    let (mut vms, deployment) = (hypervisor.vms().await?, hypervisor.deployment());
    let (mut given_up, mut gone, mut taken) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    let (mut left, mut copied, mut unproved) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for machine in &kept.machines {
        let Some(noted) = machine.noted() else { continue };
        if !vms.iter().any(|vm| vm.uuid() == noted) {
            // A VM that was moved out of the searched folders, or restamped, is not gone.
            let found = match hypervisor.with_bios_uuid(noted).await {
                Ok(found) => found,
                // An unreadable VM only keeps this worker as it is.
                Err(error) => {
                    let words = format!("the state of its VM is unknown: {:#}", error.source);
                    copied.insert(machine.name.clone(), Wait::passing(machine, reason::VM_UNSEEN, words));
                    continue;
                }
            };
            let is_left = |vm: &Vm| !vm.is_anothers(deployment) && machine.has_replica(vm);
            let (replicas, copies): (Vec<Vm>, Vec<Vm>) = found.into_iter().partition(is_left);
            let is_its = |vm: &Vm| !vm.is_anothers(deployment) || machine.has_released(vm);
            let is_there = replicas.iter().chain(&copies).any(is_its);
            // An earlier version stored nothing more about a worker that the operator has removed.
            let is_known = machine.settings.is_some() || machine.state != State::Deleting;
            if machine.bios_uuid.is_some() && is_known && !is_there {
                let seen = LastSeen::noted(machine.settings.as_deref(), machine.datastore.as_deref());
                match hypervisor.absence(noted, &[&machine.name], seen).await {
                    Ok(Absence::Gone) => {}
                    Ok(Absence::Unknown(why)) => drop(unproved.insert(machine.name.clone(), why)),
                    Err(error) => drop(unproved.insert(machine.name.clone(), format!("{:#}", error.source))),
                }
            }
            if !replicas.is_empty() {
                left.insert(machine.name.clone(), replicas.iter().map(Vm::to_string).collect::<Vec<_>>());
            }
            let mut own = copies.iter().filter(|vm| !vm.is_anothers(deployment));
            if let Some(wait) = own.find_map(|vm| is_doubted(machine, vm)) {
                copied.insert(machine.name.clone(), wait);
            }
            let released = copies.iter().find(|vm| machine.has_released(vm));
            if let Some(vm) = released.filter(|_| !copies.iter().any(|vm| vm.is_of(deployment))) {
                given_up.insert(machine.name.clone(), clean(&vm.name));
                // Another VM may have been stamped so while it ran, and be copied: it counts as out of sight, like a moved one.
                let is_off = |vm: &Vm| machine.has_released(vm) && vm.power == PowerState::Off && vm.is_fenced();
                if copies.iter().all(is_off) {
                    gone.insert(machine.name.clone());
                }
            }
            // The record may be older than that VM: another one would have its BIOS UUID, and its address.
            if machine.bios_uuid.is_none()
                && copies.iter().any(|vm| vm.is_anothers(deployment) && !machine.has_released(vm))
            {
                taken.insert(machine.name.clone());
            }
            vms.extend(copies.into_iter().filter(|vm| !vm.is_anothers(deployment)));
        }
    }
    let nodes = cluster.nodes().await.map_err(ActionError::api)?;
    let mut seen = Inventory { now, vms, nodes, gone, kept: given_up, taken, left, unproved, ..Inventory::default() };
    copied.extend(doubtful(hypervisor, &kept.machines, &seen).await);
    seen.doubtful = copied;
    // Before the VMs are asked: a worker that has joined since then reports it.
    let may_join = |machine: &&WorkerRecord| machine.state != State::Running;
    let ready = kept.machines.iter().filter(may_join).filter_map(|machine| seen.node(machine).own());
    let ready: Vec<&NodeSeen> = ready.filter(|node| node.ready).collect();
    if !ready.is_empty() {
        seen.let_in = cluster.let_in(&ready).await.map_err(ActionError::api)?;
    }
    let (mut said_of, mut unheard) = (BTreeMap::new(), BTreeMap::new());
    for machine in kept.machines.iter().filter(|machine| may_join(machine) || !seen.is_ready(machine)) {
        let Observed::Vm(vm) = seen.vm(machine) else { continue };
        if vm.power != PowerState::On {
            continue;
        }
        // It only gives the reason, or the owner of a node: no action requires it first.
        match hypervisor.statement(&vm.reference).await {
            Ok(Some(said)) => drop(said_of.insert(machine.name.clone(), said)),
            Ok(None) => {}
            Err(error) => drop(unheard.insert(machine.name.clone(), format!("{:#}", error.source))),
        }
    }
    (seen.said, seen.unheard) = (said_of, unheard);
    let mut may_keep = Vec::new();
    for machine in kept.machines.iter().filter(|machine| machine.state == State::Deleting) {
        let (name, node) = (machine.name.clone(), seen.node(machine));
        let (is_own, is_foreign) = (matches!(node, Node::Own(_)), matches!(node, Node::Foreign));
        if is_own {
            seen.pods.insert(name.clone(), cluster.pods(&name).await.map_err(ActionError::api)?);
            seen.announced.insert(name.clone(), cluster.announced(&name).await.map_err(ActionError::api)?);
        }
        // Volumes name their node even if it was removed.
        if !is_foreign {
            may_keep.push(name);
        }
    }
    if !may_keep.is_empty() {
        seen.claims = cluster.local_claims(&may_keep).await.map_err(ActionError::api)?;
    }
    Ok(seen)
}

/// Why the VMs of members that do not run are not changed, by worker: each may be a copy of the worker, which runs elsewhere.
/// Only members with a Ready node are checked. One whose node is not Ready is unhealthy anyway, and an inventory must not ask
/// about each running VM.
async fn doubtful(hypervisor: &dyn Hypervisor, machines: &[WorkerRecord], seen: &Inventory) -> BTreeMap<String, Wait> {
    let mut doubtful = BTreeMap::new();
    for machine in machines.iter().filter(|machine| machine.state == State::Running && seen.node_is_ready(machine)) {
        let Observed::Vm(vm) = seen.vm(machine) else { continue };
        if !matches!(vm.power, PowerState::Off | PowerState::Suspended) {
            continue;
        }
        let wait = match doubles(hypervisor, vm).await {
            Ok(found) => not_alone(vm, &found).map(|why| Wait::lasting(machine, &why.code, &why.words)),
            // An unreadable VM only keeps this worker as it is.
            Err(error) => {
                let words = format!(
                    "its VM is {}, and it is unknown whether another one of its BIOS UUID runs: {:#}",
                    vm.power, error.source
                );
                Some(Wait::passing(machine, reason::VM_STATE, words))
            }
        };
        doubtful.extend(wait.map(|wait| (machine.name.clone(), wait)));
    }
    doubtful
}

/// Why nothing is done for a leaving worker, if a VM elsewhere is no plain replica of its VM. It may have been powered on, or
/// holds a disk of the worker.
fn is_doubted(machine: &WorkerRecord, vm: &Vm) -> Option<Wait> {
    if !machine.is_copied_by(vm) {
        return None;
    }
    let words = format!(
        "{vm}, which is {} ({}), has the BIOS UUID of its VM, which goes, and is another one that may run or holds a disk of it. It is left \
         alone: take it out of the inventory",
        vm.power, vm.reference.id
    );
    Some(Wait::lasting(machine, reason::VM_ODD, words))
}
