//! The status of workers, for messages and for programs.

use std::net::Ipv4Addr;

use contract::statement::{Phase, Statement};
use serde::Serialize;
use uuid::Uuid;

use super::decide::{Next, next};
use super::discards::Discards;
use super::inventory::{Inventory, Observed};
use super::records::PoolRecord;
use super::wait::Wait;
use super::worker_record::State;
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};
use crate::nodes::told;
use crate::schema::lowercase;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    pub name: String,
    /// Its address. With DHCP, the one that its cluster has for it, and `None` before it has joined.
    pub address: Option<Ipv4Addr>,
    #[serde(serialize_with = "lowercase")]
    pub state: State,
    pub image: String,
    /// Version of its kubelet, such as `v1.36.2`. `None` if its node reports none.
    pub kubelet: Option<String>,
    /// Whether it is made as the pool wants it now.
    pub up_to_date: bool,
    /// Whether its VM runs, and its node is Ready and takes pods.
    pub available: bool,
    /// Whether its node is Ready, even if it takes no pods.
    #[serde(skip)]
    pub ready: bool,
    /// Whether it has joined and is known to be unhealthy: its node is not Ready, or its VM does not run.
    #[serde(skip)]
    pub unhealthy: bool,
    /// BIOS UUID of its VM.
    pub vm: Option<Uuid>,
    /// Whether its VM runs. `None` if it has none.
    pub power: Option<PowerState>,
    /// How long it took to join, in seconds from its power-on.
    pub joined_seconds: Option<u64>,
    /// Why it failed, or leaves.
    pub reason: Option<Reason>,
    /// The statement of its VM while it is no member or its node is not Ready. `None` if there is no statement.
    pub says: Option<Says>,
    /// Data that may be lost with it when it leaves.
    pub drain: Discards,
    /// The name of its VM since it was disowned. `None` if it was not.
    #[serde(skip)]
    pub kept: Option<String>,
    /// Replicas of its VM, which is or was removed: they are off, elsewhere, and stay.
    #[serde(skip)]
    pub left: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Says {
    pub phase: Phase,
    /// The finding's code.
    pub code: Option<String>,
    pub words: String,
    /// The time of the statement, in seconds of Unix time by its own clock.
    pub at: u64,
}

impl Says {
    fn of(said: &Statement) -> Self {
        let Statement { phase, code, words, at, .. } = said.clone();
        Self { phase, code, words: told(&words), at }
    }
}

/// All workers of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkersStatus {
    pub pool: String,
    /// How many workers are wanted.
    pub wanted: usize,
    /// Whether VMs and nodes could be read. If not, nothing is known of them.
    pub looked: bool,
    /// How many are available.
    pub available: usize,
    /// The wanted image, for messages.
    pub image: String,
    /// The minor version of Kubernetes that the workers should run at least.
    pub kubernetes: String,
    /// Whether the replacement of outdated workers is paused.
    pub paused: bool,
    pub workers: Vec<WorkerStatus>,
    /// The conditions before the run continues.
    pub waits: Vec<Wait>,
    pub stopped: Vec<Wait>,
    /// Whether nothing is left to do.
    pub done: bool,
    /// The other command that is at work on them. `None`, while something is left to do, means that it has ended, was killed, or
    /// has stopped: resuming continues.
    pub held_by: Option<String>,
    /// VMs that are newer than the record of the pool. A caller that trusts only the record changes none of its workers.
    #[serde(skip)]
    pub newer: Vec<Vm>,
}

impl WorkersStatus {
    /// From the record, and the inventory or the reason for its absence.
    pub(super) fn of(kept: &PoolRecord, seen: Result<&Inventory, Reason>) -> Self {
        let next = seen.as_ref().map(|seen| next(&kept.pool, &kept.machines, seen));
        let done = next.as_ref().is_ok_and(Next::is_done);
        let Next { waits, stopped, .. } = next.unwrap_or_else(|why| Next {
            waits: vec![Wait { worker: None, reason: why.clone(), lasting: false, token: false }],
            ..Next::default()
        });
        let seen = seen.ok();
        let workers: Vec<WorkerStatus> = kept
            .machines
            .iter()
            .map(|machine| {
                let node = seen.and_then(|seen| seen.node(machine).own());
                let power = |seen: &Inventory| match seen.vm(machine) {
                    Observed::Vm(vm) => Some(vm.power),
                    // It exists, and may be a copy.
                    Observed::Odd if machine.state == State::Running && seen.doubtful.contains_key(&machine.name) => {
                        seen.vms.iter().find(|vm| machine.owns(vm)).map(|vm| vm.power)
                    }
                    Observed::Odd | Observed::Nothing => None,
                };
                WorkerStatus {
                    name: machine.name.clone(),
                    address: machine.address.or_else(|| node?.address),
                    state: machine.state,
                    image: machine.template.image.name.clone(),
                    kubelet: node.map(|node| node.kubelet.clone()).filter(|version| !version.is_empty()),
                    up_to_date: !seen.unwrap_or(&Inventory::default()).is_outdated(&kept.pool, machine),
                    available: seen.is_some_and(|seen| seen.is_available(machine)),
                    ready: seen.is_some_and(|seen| seen.is_ready(machine)),
                    unhealthy: seen.is_some_and(|seen| seen.is_unhealthy(machine)),
                    vm: machine.bios_uuid,
                    power: seen.and_then(power),
                    joined_seconds: machine.joined_seconds,
                    reason: machine.reason.clone(),
                    says: seen.and_then(|seen| seen.said(machine)).map(Says::of),
                    drain: machine.drain,
                    kept: seen.and_then(|seen| seen.kept.get(&machine.name)).cloned(),
                    left: seen.map(|seen| seen.left(machine).to_vec()).unwrap_or_default(),
                }
            })
            .collect();
        Self {
            pool: kept.pool.name.clone(),
            wanted: kept.pool.count,
            available: workers.iter().filter(|worker| worker.available).count(),
            image: kept.pool.template.image.name.clone(),
            kubernetes: kept.pool.template.kubernetes.clone(),
            paused: kept.pool.rollout.paused,
            looked: seen.is_some(),
            done,
            workers,
            waits,
            stopped,
            held_by: None,
            newer: seen.map(|seen| seen.newer(&kept.machines).into_iter().cloned().collect()).unwrap_or_default(),
        }
    }
}
