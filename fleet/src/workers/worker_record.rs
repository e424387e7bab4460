//! The small journal of one worker: what was begun for it. Kept before anything follows from it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::discards::Discards;
use super::pool::{Pool, Template};
use super::reason;
use super::removal::Removal;
use crate::hypervisor::{DiskKind, PowerState, Stamp, Vm, VmRef};
use crate::upgrade::Reason;

/// So many disks of a VM that goes are noted: as many as a Machine's status takes.
const MOST_GOING_DISKS: usize = 64;

/// How far a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its VM is to be made, or is made and was never powered on.
    Provisioning,
    /// Its VM was powered on, and is to join.
    Joining,
    /// It has joined.
    Running,
    /// It had joined, and is given a new token to join again with.
    Rejoining,
    /// It did not join. What there is of it stays until a person goes on: its console says why.
    Failed,
    /// It is drained, and goes.
    Deleting,
}

impl State {
    pub fn moves(self) -> bool {
        matches!(self, Self::Provisioning | Self::Joining | Self::Rejoining | Self::Deleting)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The name of the VM and of the node; never used for another machine of the pool.
    pub name: String,
    /// What its VM's stamp has beside the deployment: made once, before the VM.
    pub id: Uuid,
    pub template: Template,
    /// Its address; none where it asks for one by DHCP.
    pub address: Option<Ipv4Addr>,
    pub state: State,
    /// Since when it is in that state, or is watched by a command, in seconds of Unix time.
    pub since: u64,
    /// BIOS UUID that its VM is made with, drawn and noted before: half of it is known by that. Stamps alone prove nothing, for
    /// whoever may change a VM's settings can write one.
    #[serde(default)]
    pub allocated_uuid: Option<Uuid>,
    /// BIOS UUID of its VM, once that was made whole.
    #[serde(default)]
    pub bios_uuid: Option<Uuid>,
    /// The public half of its join token, noted before that is made and until it is removed.
    #[serde(default)]
    pub token: Option<String>,
    /// Until when that token is good, in seconds of Unix time.
    #[serde(default)]
    pub expires: u64,
    /// How many times longer than usual it may take for anything, as it was told when its VM was made.
    #[serde(default = "usual")]
    pub timeout_factor: u32,
    /// How long it took to join, in seconds from its power-on.
    #[serde(default)]
    pub joined_seconds: Option<u64>,
    /// Why it failed, or leaves.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Since when its node takes no new pods and leaves the addresses of services to others, for it to go, in seconds of Unix
    /// time.
    #[serde(default)]
    pub cordoned: Option<u64>,
    /// Since when other nodes answer for the addresses of services in its place, in seconds of Unix time.
    #[serde(default)]
    pub handed_over: Option<u64>,
    #[serde(default)]
    pub drain: Discards,
    /// What becomes of its VM once it has left.
    #[serde(default)]
    pub removal: Removal,
    /// When its node had said something last, as [`super::NodeSeen::heard`], before its VM was powered on again.
    #[serde(default)]
    pub last_heartbeat: Option<String>,
    /// Whether its VM was on before it was powered off for a new token, and was not powered on since.
    #[serde(default)]
    pub was_powered_on: bool,
    /// The key with which its VM asks to join with its last token, as it said before its kubelet was heard: programs of pods may
    /// say another one later. Of one in whose place somebody else was seen, what it said then, where none was noted before.
    #[serde(default)]
    pub key: Option<String>,
    /// Whether somebody else was seen to have joined in its place, and it was given no other token since.
    #[serde(default)]
    pub impersonated: bool,
    /// Its VM, noted before that is taken apart, removed or given up: another one of its BIOS UUID that is found afterwards is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting_vm: Option<VmRef>,
    /// UUIDs of the disks that its VM held then, but for volumes of storage drivers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deleting_disks: BTreeSet<Uuid>,
    /// The file that the settings of its VM were in when that was seen last: where it is still there, a VM that is not shown may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// The hypervisor's identifier of the datastore of that file, which stays if the datastore is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
}

impl WorkerRecord {
    /// The next one of a pool, by the highest number that was given. Nothing is begun for it.
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

    /// Whether a VM is the one that was given up for it: nobody's now.
    pub(super) fn has_released(&self, vm: &Vm) -> bool {
        self.noted() == Some(vm.uuid()) && vm.stamp.as_ref() == Some(&self.stamp(Uuid::nil()))
    }

    /// The same with its VM noted that is about to be taken apart, removed or given up.
    #[must_use]
    pub(super) fn taking_apart(&self, vm: &Vm) -> Self {
        let mut noted = self.clone();
        noted.deleting_vm = Some(vm.reference.clone());
        // By its system disk it is known once the hypervisor calls it otherwise, as where its host was taken out and added again.
        let mut own: Vec<_> = vm.disks.iter().filter(|disk| disk.kind != DiskKind::Foreign).collect();
        own.sort_by_key(|disk| disk.kind != DiskKind::System);
        let is_noted = |uuid: &Uuid| self.deleting_disks.contains(uuid);
        let new = own.iter().map(|disk| disk.reference.uuid).filter(|uuid| !is_noted(uuid));
        noted.deleting_disks.extend(new.take(MOST_GOING_DISKS.saturating_sub(self.deleting_disks.len())));
        noted
    }

    /// Whether a VM elsewhere has the BIOS UUID of its VM, which goes, and is another one.
    pub(super) fn is_copied_by(&self, vm: &Vm) -> bool {
        self.deleting_vm.as_ref().is_some_and(|going| vm.is_double_of(going))
    }

    /// Whether such a one is a replica that backup software keeps: it is off, and none of the worker's disks is in it. It is nothing of the
    /// worker's, and stays.
    pub(super) fn has_replica(&self, vm: &Vm) -> bool {
        let is_plain = vm.power == PowerState::Off && !self.deleting_disks.iter().any(|disk| vm.disk(*disk).is_some());
        self.is_copied_by(vm) && is_plain
    }

    /// What its VM is called once it is given up: its own name is free then.
    pub(super) fn name_of_kept(&self, vm: &Vm) -> String {
        let uuid = vm.uuid().to_string();
        format!("{}-kept-{}", self.name, uuid.split('-').next().unwrap_or_default())
    }

    /// BIOS UUID of the VM that was made for it, or was to be.
    pub(super) fn noted(&self) -> Option<Uuid> {
        self.bios_uuid.or(self.allocated_uuid)
    }

    /// Whether its token is good for as long as a worker may take to join.
    pub(super) fn has_time(&self, pool: &Pool, now: u64) -> bool {
        now + self.join_seconds(pool) < self.expires
    }

    /// Whether it was a member once.
    pub(super) fn has_joined(&self) -> bool {
        self.joined_seconds.is_some()
    }

    /// Whether somebody else was seen to have joined in its place, also where it has failed for that.
    pub(super) fn is_anothers(&self) -> bool {
        self.impersonated || self.reason.as_ref().is_some_and(|why| why.code == reason::NAME_IN_USE)
    }

    /// Brings it to another state. That somebody else has joined in its place outlives that it has failed for it.
    pub(super) fn enter(&mut self, state: State, since: u64, reason: Option<Reason>) {
        self.impersonated = self.is_anothers();
        (self.state, self.since, self.reason) = (state, since, reason);
    }

    /// Has it go for this reason, from `now` on, in seconds of Unix time. It is not drained where somebody else was seen in its
    /// place, whatever it goes for.
    pub fn leave(&mut self, now: u64, why: Reason) {
        self.enter(State::Deleting, now, Some(why));
    }

    /// How long it may take to join, or to be Ready again, in seconds.
    pub(super) fn join_seconds(&self, pool: &Pool) -> u64 {
        pool.rollout.join_seconds * u64::from(self.timeout_factor)
    }

    /// Whether it does its part or comes to it: others are made for those that do not.
    pub fn stays(&self) -> bool {
        matches!(self.state, State::Provisioning | State::Joining | State::Running | State::Rejoining)
    }

    /// Whether it counts towards what is wanted: also one that has failed, which stays for a person, who may let it go on.
    pub(super) fn counts(&self) -> bool {
        self.state != State::Deleting
    }

    /// The number in its name; zero in a name without one.
    pub fn number(&self) -> u64 {
        numbered(&self.name).unwrap_or_default()
    }
}

/// The number in a machine's name, if it has one.
pub(super) fn numbered(name: &str) -> Option<u64> {
    name.rsplit_once("-w")?.1.parse().ok()
}

/// The factor of machines that are told none.
fn usual() -> u32 {
    1
}
