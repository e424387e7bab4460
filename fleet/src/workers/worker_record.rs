//! The journal of one worker: what was begun for it. It is saved before anything follows from it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::discards::Discards;
use super::pool::{Pool, Template};
use super::reason;
use super::removal::Removal;
use crate::engine::Reason;
use crate::hypervisor::{DiskKind, PowerState, Stamp, Vm, VmRef};

/// The most disks of a leaving VM that are recorded: as many as a Machine's status takes.
const MOST_GOING_DISKS: usize = 64;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its VM is to be created, or was created and never powered on.
    Provisioning,
    /// Its VM was powered on, and should join.
    Joining,
    /// It has joined.
    Running,
    /// It had joined, and gets a new token to join again.
    Rejoining,
    /// It did not join. Everything of it stays until the operator continues: its console says why.
    Failed,
    /// It is drained, and leaves.
    Deleting,
}

impl State {
    pub fn moves(self) -> bool {
        matches!(self, Self::Provisioning | Self::Joining | Self::Rejoining | Self::Deleting)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The name of the VM and of the node. Never used for another worker of the pool.
    pub name: String,
    /// The worker's ID in its VM's stamp, in addition to the deployment. Drawn once, before the VM is created.
    pub id: Uuid,
    pub template: Template,
    /// Its address. `None` for DHCP.
    pub address: Option<Ipv4Addr>,
    pub state: State,
    /// When it entered the state, or a command began to watch it, in seconds of Unix time.
    pub since: u64,
    /// BIOS UUID for its VM, drawn and saved before the VM is created. It identifies an incomplete VM. A stamp alone proves
    /// nothing: each account that may change a VM's settings can write one.
    #[serde(default)]
    pub allocated_uuid: Option<Uuid>,
    /// BIOS UUID of its VM, once the VM is complete.
    #[serde(default)]
    pub bios_uuid: Option<Uuid>,
    /// The public half of its join token, saved before its creation and until its removal.
    #[serde(default)]
    pub token: Option<String>,
    /// When that token expires, in seconds of Unix time.
    #[serde(default)]
    pub expires: u64,
    /// How many times longer than usual it may take for anything, as set when its VM was created.
    #[serde(default = "usual")]
    pub timeout_factor: u32,
    /// How long it took to join, in seconds from its power-on.
    #[serde(default)]
    pub joined_seconds: Option<u64>,
    /// Why it failed, or leaves.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// When its node was cordoned, and the addresses of services moved to other nodes, for its removal, in seconds of Unix time.
    #[serde(default)]
    pub cordoned: Option<u64>,
    /// When other nodes began to answer for the addresses of services in its place, in seconds of Unix time.
    #[serde(default)]
    pub handed_over: Option<u64>,
    #[serde(default)]
    pub drain: Discards,
    /// The end of its VM once it has left.
    #[serde(default)]
    pub removal: Removal,
    /// The last report of its node, as [`super::NodeSeen::heard`], before its VM was powered on again.
    #[serde(default)]
    pub last_heartbeat: Option<String>,
    /// Whether its VM was on before it was powered off for a new token, and was not powered on since.
    #[serde(default)]
    pub was_powered_on: bool,
    /// The key with which its VM asks to join with its last token, as reported before its kubelet was heard. Later programs of
    /// pods may report another one. If the worker was impersonated and no key was recorded, the key that its VM reported then.
    #[serde(default)]
    pub key: Option<String>,
    /// Whether another client was seen to have joined in its place, and it got no other token since.
    #[serde(default)]
    pub impersonated: bool,
    /// Its VM, recorded before it is changed for its removal, removed or disowned. Another one with its BIOS UUID that is found
    /// later is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting_vm: Option<VmRef>,
    /// UUIDs of the disks that its VM held then, except volumes of storage drivers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deleting_disks: BTreeSet<Uuid>,
    /// The settings file of its VM when the VM was last seen. If the file still exists, a VM that is not shown may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// The hypervisor's identifier of the datastore of that file. It stays if the datastore is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
}

impl WorkerRecord {
    /// The next worker of a pool, with the last given number. Nothing is begun for it.
    pub(super) fn new(pool: &Pool, id: Uuid, address: Option<Ipv4Addr>, since: u64) -> Self {
        Self {
            name: pool.machine_name(pool.last_index),
            id,
            template: pool.template.clone(),
            address,
            state: State::Provisioning,
            since,
            allocated_uuid: None,
            bios_uuid: None,
            token: None,
            expires: 0,
            timeout_factor: usual(),
            joined_seconds: None,
            reason: None,
            cordoned: None,
            handed_over: None,
            drain: Discards::default(),
            removal: Removal::default(),
            last_heartbeat: None,
            was_powered_on: false,
            key: None,
            impersonated: false,
            deleting_vm: None,
            deleting_disks: BTreeSet::new(),
            settings: None,
            datastore: None,
        }
    }

    pub fn stamp(&self, deployment: Uuid) -> Stamp {
        Stamp { deployment, node: self.name.clone(), swap: Some(self.id) }
    }

    /// Whether a VM carries its stamp.
    pub fn owns(&self, vm: &Vm) -> bool {
        vm.stamp.as_ref().is_some_and(|stamp| stamp.node == self.name && stamp.swap == Some(self.id))
    }

    /// Whether a VM is the one that was disowned for it.
    pub(super) fn has_released(&self, vm: &Vm) -> bool {
        self.noted() == Some(vm.uuid()) && vm.stamp.as_ref() == Some(&self.stamp(Uuid::nil()))
    }

    /// The record with its VM that is about to be changed for its removal, removed or disowned.
    #[must_use]
    pub(super) fn taking_apart(&self, vm: &Vm) -> Self {
        let mut noted = self.clone();
        noted.deleting_vm = Some(vm.reference.clone());
        // The system disk identifies the VM if the hypervisor gives it another ID, such as after its host was removed and added
        // again.
        let mut own: Vec<_> = vm.disks.iter().filter(|disk| disk.kind != DiskKind::Foreign).collect();
        own.sort_by_key(|disk| disk.kind != DiskKind::System);
        let is_noted = |uuid: &Uuid| self.deleting_disks.contains(uuid);
        let new = own.iter().map(|disk| disk.reference.uuid).filter(|uuid| !is_noted(uuid));
        noted.deleting_disks.extend(new.take(MOST_GOING_DISKS.saturating_sub(self.deleting_disks.len())));
        noted
    }

    /// Whether a VM elsewhere has the BIOS UUID of its leaving VM, and is another one.
    pub(super) fn is_copied_by(&self, vm: &Vm) -> bool {
        self.deleting_vm.as_ref().is_some_and(|going| vm.is_double_of(going))
    }

    /// Whether such a VM is a replica of backup software: it is off, and holds none of the worker's disks. It does not belong to
    /// the worker, and stays.
    pub(super) fn has_replica(&self, vm: &Vm) -> bool {
        let is_plain = vm.power == PowerState::Off && !self.deleting_disks.iter().any(|disk| vm.disk(*disk).is_some());
        self.is_copied_by(vm) && is_plain
    }

    /// The name of its VM once it is disowned: the worker's name is free then.
    pub(super) fn name_of_kept(&self, vm: &Vm) -> String {
        let uuid = vm.uuid().to_string();
        format!("{}-kept-{}", self.name, uuid.split('-').next().unwrap_or_default())
    }

    /// BIOS UUID of the VM that was created for it, or was to be.
    pub(super) fn noted(&self) -> Option<Uuid> {
        self.bios_uuid.or(self.allocated_uuid)
    }

    /// Whether its token is valid for as long as a worker may take to join.
    pub(super) fn has_time(&self, pool: &Pool, now: u64) -> bool {
        now + self.join_seconds(pool) < self.expires
    }

    /// Whether it was a member once.
    pub(super) fn has_joined(&self) -> bool {
        self.joined_seconds.is_some()
    }

    /// Whether another client was seen to have joined in its place, including a failure for that reason.
    pub(super) fn is_anothers(&self) -> bool {
        self.impersonated || self.reason.as_ref().is_some_and(|why| why.code == reason::NAME_IN_USE)
    }

    /// Changes its state. If another client has joined in its place, this stays recorded after its failure.
    pub(super) fn enter(&mut self, state: State, since: u64, reason: Option<Reason>) {
        self.impersonated = self.is_anothers();
        (self.state, self.since, self.reason) = (state, since, reason);
    }

    /// Begins its removal for this reason at `now`, in seconds of Unix time. If another client was seen in its place, it is not
    /// drained, whatever the reason is.
    pub fn leave(&mut self, now: u64, why: Reason) {
        self.enter(State::Deleting, now, Some(why));
    }

    /// How long it may take to join, or to be Ready again, in seconds.
    pub(super) fn join_seconds(&self, pool: &Pool) -> u64 {
        pool.rollout.join_seconds * u64::from(self.timeout_factor)
    }

    /// Whether it is a member or becomes one: others are created for those that are not.
    pub fn stays(&self) -> bool {
        matches!(self.state, State::Provisioning | State::Joining | State::Running | State::Rejoining)
    }

    /// Whether it counts towards the wanted number. A failed one counts, and stays for the operator, who may continue it.
    pub(super) fn counts(&self) -> bool {
        self.state != State::Deleting
    }

    /// The number in its name. Zero if the name has none.
    pub fn number(&self) -> u64 {
        numbered(&self.name).unwrap_or_default()
    }
}

/// The number in a worker's name, if it has one.
pub(super) fn numbered(name: &str) -> Option<u64> {
    name.rsplit_once("-w")?.1.parse().ok()
}

/// The factor of workers without one.
fn usual() -> u32 {
    1
}
