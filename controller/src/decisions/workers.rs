//! The workers of a NodePool: the Machine of a new worker, the records from their Machines, their settings, and the pool's
//! conditions. `fleet` decides the next step of each worker.

use std::collections::BTreeMap;

use contract::properties as keys;
use fleet::upgrade::Reason as Why;
use fleet::workers::{Pool, PoolRecord, Site, State, WorkersStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::limits::{PoolAllowance, is_leaving_machine};
use super::owned::{CLUSTER, MACHINE_FINALIZER, NODE_POOL, owner};
use super::repair::Repairs;
use super::text::joined;
use crate::objects::{
    Discards, Machine, MachineReason, MachineRole, MachineSpec, MachineStatus, NodePool, NodePoolReason,
    NodePoolStatus, PinnedImage, Reference, Removal, TenantCluster, VMClassSpec, set,
};
use crate::records::{Mismatch, worker_of};

/// The code of a worker that leaves because its Machine was deleted.
const ASKED: &str = "workers.asked";
/// How many failed workers the command in a message names.
const NAMED: usize = 5;

/// The settings of workers: the shared part of a control-plane node's form, and the hash of the cluster's CA.
pub fn site(of_control_node: &BTreeMap<String, String>, authority: String) -> Site {
    let shared = of_control_node.iter().filter(|(key, _)| Site::shares(key));
    let mut told: BTreeMap<String, String> = shared.map(|(key, value)| (key.clone(), value.clone())).collect();
    told.insert(keys::CLUSTER_CA_HASH.to_owned(), authority);
    Site(told)
}

/// The Machine of a new worker, without its name. `wanted` is the pool in `fleet`'s words.
pub fn machine_template(
    cluster: &TenantCluster,
    pool: &NodePool,
    wanted: &Pool,
    class: &VMClassSpec,
    zone: &str,
) -> Machine {
    let (name, network) = (cluster.name_any(), pool.spec.network.clone());
    let spec = MachineSpec {
        cluster_ref: Reference::to(&name),
        role: MachineRole::Worker,
        pool_ref: Some(Reference::to(pool.name_any())),
        zone: zone.to_owned(),
        network: network.unwrap_or_else(|| cluster.spec.network.name.clone()),
        image: PinnedImage {
            name: wanted.template.image.name.clone(),
            digest: format!("sha256:{}", wanted.template.image.digest),
        },
        kubernetes: wanted.template.kubernetes.clone(),
        processors: class.processors,
        memory_mib: class.memory_mib,
        data_disk_gib: class.data_disk_gib,
        labels: pool.spec.labels.clone(),
        taints: pool.spec.taints.clone(),
        removal: Removal::Destroy,
        drain: Discards::default(),
    };
    let metadata = ObjectMeta {
        namespace: pool.namespace(),
        labels: Some([(CLUSTER.to_owned(), name), (NODE_POOL.to_owned(), pool.name_any())].into()),
        owner_references: Some(vec![owner(cluster)]),
        finalizers: Some(vec![MACHINE_FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    Machine { metadata, spec, status: None }
}

/// Whether a pool may have to create a worker: too few workers stay, or one is outdated or unhealthy, or did not join. Otherwise
/// the limits do not matter to it.
pub fn may_make(wanted: &Pool, machines: &[Machine]) -> bool {
    let staying = machines.iter().filter(|machine| !is_leaving_machine(machine)).count();
    let is_outdated =
        |machine: &Machine| worker_of(machine).map_or(true, |worker| wanted.template.outdates(&worker.template));
    let is_ill = |machine: &Machine| {
        let status = machine.status.as_ref();
        status.is_some_and(|status| status.unhealthy_since.is_some() || status.phase == State::Failed)
    };
    staying < wanted.count || machines.iter().any(|machine| is_outdated(machine) || is_ill(machine))
}

/// The records of a pool's workers. A worker whose Machine was deleted leaves. If the pool is deleted, all leave, and pods and
/// volumes do not delay them.
///
/// # Errors
/// A Machine does not match its form: nothing is done for the pool then.
pub fn pool_record(wanted: Pool, machines: &[Machine], is_going: bool, now: u64) -> Result<PoolRecord, Mismatch> {
    let mut pool = wanted;
    let mut workers = machines.iter().map(worker_of).collect::<Result<Vec<_>, _>>()?;
    for (worker, machine) in workers.iter_mut().zip(machines) {
        let is_deleted = machine.metadata.deletion_timestamp.is_some();
        if (is_deleted || is_going) && worker.state != State::Deleting {
            if worker.state == State::Failed {
                // The operator has seen it: the next joins are the first ones.
                pool.failed_joins = pool.failed_joins.map(|_| 0);
            }
            let words = if is_going { "the pool goes" } else { "its Machine was deleted" };
            worker.leave(now, Why::new(ASKED, words));
        }
        if is_going {
            (worker.drain.delete_local_volumes, worker.drain.delete_unmanaged_pods) = (true, true);
        }
    }
    let number =
        |name: &str| name.rsplit_once("-w").and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or_default();
    workers.sort_by_key(|worker| number(&worker.name));
    pool.last_index = pool.last_index.max(workers.iter().map(|worker| number(&worker.name)).max().unwrap_or_default());
    if is_going {
        pool.count = 0;
    }
    Ok(PoolRecord { pool, machines: workers })
}

/// The observation of a pool, and the decisions from it.
#[derive(Debug)]
pub struct PoolObservation<'a> {
    pub seen: &'a WorkersStatus,
    /// The message on VMs that are newer than the database, if there are any.
    pub drifted: Option<String>,
    pub held: &'a PoolAllowance,
    pub repairs: &'a Repairs,
    /// The versions that the control-plane nodes have to reach first, if any.
    pub awaited: Option<String>,
    pub going: bool,
}

/// The status of a pool for this generation of its spec.
pub fn pool_status(pool: &NodePool, generation: i64, looked: &PoolObservation<'_>, now: &Time) -> NodePoolStatus {
    use NodePoolReason::{
        AdoptionRequired, AllReady, AwaitingControlPlane, Current, DrainBlocked, JoinFailed, NotReached, Paused,
        Replacing, Scaling, WorkersNotReady,
    };
    let PoolObservation { seen, drifted, held, repairs, awaited, going } = looked;
    let mut status = pool.status.clone().unwrap_or_default();
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let staying: Vec<_> = seen.workers.iter().filter(|worker| worker.state != State::Deleting).collect();
    status.observed_generation = generation;
    // A failed look says nothing of numbers.
    if seen.looked {
        status.replicas = number(staying.len());
        status.ready_replicas = number(staying.iter().filter(|worker| worker.available).count());
        status.updated_replicas = number(staying.iter().filter(|worker| worker.up_to_date).count());
    }
    status.selector = Some(format!("{NODE_POOL}={}", pool.name_any()));
    let moves = seen.workers.iter().any(|worker| worker.state.moves()) || staying.len() != seen.wanted;
    let ready = if !seen.looked {
        (NotReached, joined(&seen.waits))
    } else if let Some(words) = drifted {
        (AdoptionRequired, words.clone())
    } else if !seen.stopped.is_empty() {
        (JoinFailed, join_failed(seen))
    } else if *going || moves {
        (Scaling, joined(&seen.waits))
    } else if seen.available < seen.wanted {
        (WorkersNotReady, joined(&seen.waits))
    } else if let Some((reason, words)) = &held.why {
        (*reason, words.clone())
    } else {
        (AllReady, String::new())
    };
    let is_blocked = |wait: &&fleet::workers::Wait| wait.lasting && wait.worker.is_some();
    let blocked: Vec<_> = seen.waits.iter().filter(is_blocked).cloned().collect();
    let leaves = seen.workers.iter().any(|worker| worker.state == State::Deleting);
    let up_to_date = if leaves && !blocked.is_empty() {
        (DrainBlocked, joined(&blocked))
    } else if staying.iter().all(|worker| worker.up_to_date) {
        awaited.clone().map_or((Current, String::new()), |words| (AwaitingControlPlane, words))
    } else if let Some(words) = held.stands.clone().filter(|_| !pool.spec.rollout.paused) {
        (Replacing, words)
    } else if seen.paused {
        (Paused, String::new())
    } else {
        let waits = Some(joined(&seen.waits)).filter(|words| !words.is_empty());
        (Replacing, waits.into_iter().chain(held.slow.clone()).collect::<Vec<_>>().join("; "))
    };
    let repairable = (repairs.reason, repairs.words.clone());
    for (reason, words) in [Some(ready), seen.looked.then_some(up_to_date), Some(repairable)].into_iter().flatten() {
        set(&mut status.conditions, reason, &words, generation, now);
    }
    status
}

/// Which workers did not join and wait for the operator, why, and what the operator can do.
fn join_failed(seen: &WorkersStatus) -> String {
    let failed: Vec<&str> = seen.stopped.iter().filter_map(|wait| wait.worker.as_deref()).take(NAMED).collect();
    let (failed, why) = (failed.join(" "), joined(&seen.stopped));
    format!("workers did not join: remove the cause, then run `kubectl delete machine {failed}`. {why}")
}

/// The status of a worker's Machine, apart from its record.
pub fn shown_worker(machine: &Machine, seen: &WorkersStatus, now: &Time) -> MachineStatus {
    use MachineReason::{
        Current, Draining, JoinFailed, Joining, NodeNotReached, NodeServes, NotKnown, NotReady, Outdated, PoweredOff,
        VmGone, VmKept, VmNotAsked, VmProvisioning, VmRuns, Works, WorksNot,
    };
    use fleet::hypervisor::PowerState;
    let mut status = machine.status.clone().unwrap_or_default();
    let name = machine.name_any();
    let Some(worker) = seen.workers.iter().find(|worker| worker.name == name) else { return status };
    let generation = machine.metadata.generation.unwrap_or_default();
    status.observed_generation = generation;
    if let Some(address) = worker.address {
        status.address = Some(address.to_string());
    }
    if seen.looked && worker.unhealthy {
        status.unhealthy_since.get_or_insert_with(|| now.clone());
        status.last_unhealthy = Some(now.clone());
    } else if seen.looked {
        (status.unhealthy_since, status.last_unhealthy) = (None, None);
    }
    let has_joined = matches!(worker.state, State::Running | State::Rejoining | State::Deleting);
    if has_joined && worker.kubelet.is_some() {
        status.node = Some(name.clone());
    }
    let vm = match (seen.looked, worker.power, worker.vm) {
        (false, ..) => VmNotAsked,
        _ if worker.kept.is_some() => VmKept,
        (_, Some(PowerState::On), _) => VmRuns,
        (_, Some(_), _) if worker.state != State::Provisioning => PoweredOff,
        (_, None, Some(_)) => VmGone,
        _ => VmProvisioning,
    };
    let node = match worker.state {
        _ if !seen.looked => NodeNotReached,
        State::Failed => JoinFailed,
        State::Deleting => Draining,
        State::Provisioning | State::Joining => Joining,
        State::Running | State::Rejoining if worker.ready => NodeServes,
        State::Running | State::Rejoining => NotReady,
    };
    let ready = match (vm, node) {
        (VmNotAsked, _) | (_, NodeNotReached) => NotKnown,
        (VmRuns, NodeServes) => Works,
        _ => WorksNot,
    };
    let kept =
        |name: &String| format!("its VM is kept as {name} in the folder of its cluster, and is no longer managed");
    let mut said: Vec<String> = worker.kept.iter().map(kept).collect();
    if !worker.left.is_empty() {
        said.push(format!("what has the BIOS UUID of its VM elsewhere, and is off, stays: {}", worker.left.join(", ")));
    }
    let of_it = |wait: &&fleet::workers::Wait| wait.worker.as_ref() == Some(&name);
    let waits: Vec<_> = seen.waits.iter().chain(&seen.stopped).filter(of_it).map(|wait| &wait.reason).collect();
    // A wait may have the words of the reason in its own.
    let is_said = |why: &&Why| waits.iter().any(|wait| wait.words.contains(&why.words));
    said.extend(worker.reason.iter().filter(|why| !is_said(why)).map(ToString::to_string));
    said.extend(waits.iter().map(ToString::to_string));
    said.dedup();
    let words = said.join("; ");
    let up_to_date = if worker.up_to_date { Current } else { Outdated };
    for reason in [vm, node, ready, up_to_date] {
        let is_good = matches!(reason, VmRuns | NodeServes | Works | Current);
        set(&mut status.conditions, reason, if is_good { "" } else { &words }, generation, now);
    }
    status
}

#[cfg(test)]
mod tests {
    use fleet::workers::{Rollout, WorkerRecord as Worker};
    use uuid::Uuid;

    use super::super::fixture::now;
    use super::*;
    use crate::objects::fixture;
    use crate::records::noted;

    #[test]
    fn deleted_machine_keeps_its_impersonation_mark() {
        for (code, impersonated) in [("workers.name-in-use", true), ("workers.not-joined", false)] {
            let mut machine = Machine::new("shop-general-w1", fixture::worker());
            machine.metadata.uid = Some(Uuid::from_u128(1).to_string());
            let begun = worker_of(&machine).unwrap();
            let reason = Some(Why::new(code, "it has failed"));
            let failed = Worker { state: State::Failed, joined_seconds: Some(61), reason, ..begun.clone() };
            let mut machine = noted(&machine, &failed).unwrap();
            machine.metadata.deletion_timestamp = Some(now());
            let pool = Pool {
                name: "general".to_owned(),
                prefix: "shop-general".to_owned(),
                count: 0,
                template: begun.template,
                ova: "a.ova".into(),
                carries: vec!["1.36".to_owned()],
                addresses: None,
                rollout: Rollout::default(),
                last_index: 1,
                powers_on: false,
                keeps_lost: true,
                failed_joins: Some(3),
                remove_first: Default::default(),
            };
            let kept = pool_record(pool, &[machine], false, 1_796_115_600).unwrap();
            let [worker] = &kept.machines[..] else { panic!("{kept:?}") };
            let why = worker.reason.as_ref().map(|why| why.code.as_str());
            assert_eq!((worker.state, why, worker.impersonated), (State::Deleting, Some(ASKED), impersonated));
            assert_eq!(kept.pool.failed_joins, Some(0), "the operator has seen that it did not join");
        }
    }
}
