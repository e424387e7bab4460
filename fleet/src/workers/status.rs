//! Where workers stand, for people and for programs.

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
use crate::hypervisor::{PowerState, Vm};
use crate::nodes::told;
use crate::upgrade::Reason;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    pub name: String,
    /// Its address; of one that asks for it by DHCP what its cluster knows it by, and none before it has joined.
    pub address: Option<Ipv4Addr>,
    pub state: State,
    pub image: String,
    /// Version of its kubelet, such as `v1.36.2`; none where its node says nothing.
    pub kubelet: Option<String>,
    /// Whether it is made as the pool wants it now.
    pub up_to_date: bool,
    /// Whether it does its part: its VM runs, and its node is Ready and takes pods.
    pub available: bool,
    /// Whether its node is Ready, whatever of pods it takes.
    #[serde(skip)]
    pub ready: bool,
    /// Whether it has joined and does not do its part, as far as that is known: its node is not Ready, or its VM does not run.
    #[serde(skip)]
    pub unhealthy: bool,
    /// BIOS UUID of its VM.
    pub vm: Option<Uuid>,
    /// Whether its VM runs; none if it has none.
    pub power: Option<PowerState>,
    /// How long it took to join, in seconds from its power-on.
    pub joined_seconds: Option<u64>,
    /// Why it failed, or leaves.
    pub reason: Option<Reason>,
    /// What its VM says of itself while it is no member or its node is not Ready; none if it says nothing.
    pub says: Option<Says>,
    /// What may be lost with it when it leaves.
    pub drain: Discards,
    /// What its VM is called since it was given up; none if it was not.
    #[serde(skip)]
    pub kept: Option<String>,
    /// Replicas of its VM, which goes or has gone: they are off, elsewhere, and stay.
    #[serde(skip)]
    pub left: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Says {
    pub phase: Phase,
    /// What stands in its way, by a finding's code.
    pub code: Option<String>,
    pub words: String,
    /// When it has said so, in seconds of Unix time by its own clock.
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
    /// Whether VMs and nodes could be looked at; where not, nothing is said of them.
    pub looked: bool,
    /// How many do their part.
    pub available: usize,
    /// The image that is wanted, for people.
    pub image: String,
    /// The minor of Kubernetes that the workers are to run, or a newer one.
    pub kubernetes: String,
    /// Whether the replacement of outdated workers is paused.
    pub paused: bool,
    pub workers: Vec<WorkerStatus>,
    /// What has to happen before it goes on.
    pub waits: Vec<Wait>,
    pub stopped: Vec<Wait>,
    /// Whether there is nothing left to do.
    pub done: bool,
    /// Who is at work on them, if another command is. None, while something is left to do, is one that was ended or killed, or
    /// has given it up: resuming goes on.
    pub held_by: Option<String>,
    /// VMs that are newer than what is kept of the pool: who goes by that alone acts on none of its workers.
    #[serde(skip)]
    pub newer: Vec<Vm>,
}

impl WorkersStatus {
    /// From what is kept, and what was seen or why nothing was.
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
                    // It is there, and may be a copy.
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
