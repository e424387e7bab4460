//! The journal of one worker: what was begun for it. It is saved before anything follows from it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::discards::Discards;
use super::pool::{Pool, Template};
use super::reason;
use super::removal::Removal;
use crate::engine::Reason;
use crate::hypervisor::{DiskKind, PowerState, Stamp, Vm, VmRef};
use crate::{schema, timestamp};

/// The most disks of a leaving VM that are recorded: as many as a Machine's status takes.
const MOST_GOING_DISKS: usize = 64;

/// Phase of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// Its VM is to be created, or was created and never powered on.
    #[default]
    Provisioning,
    /// Its VM was powered on, and has to join.
    Joining,
    /// The node has joined.
    Running,
    /// The node had joined, and gets a new token to join again.
    Rejoining,
    /// The node did not join. Its VM stays until another worker is created in its place, or the operator acts. The VM's console
    /// shows the reason.
    Failed,
    /// The node is drained and removed.
    Deleting,
}

impl State {
    pub fn moves(self) -> bool {
        matches!(self, Self::Provisioning | Self::Joining | Self::Rejoining | Self::Deleting)
    }
}

/// The record of a worker's steps. A Machine has the fields without a schema elsewhere: in its metadata, its spec, or its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerRecord {
    /// The name of the VM and of the node. Never used for another worker of the pool.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(skip)]
    pub name: String,
    // Drawn once, before the VM is created.
    /// UID in the stamp of an adopted VM in place of this Machine's UID. It is the UID of the former Machine, which no longer
    /// exists.
    #[serde(rename = "stamp", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::uuid")]
    pub id: Uuid,
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(skip)]
    pub template: Template,
    /// IPv4 address that was claimed from a pool. Unset if the worker uses DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub address: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(skip)]
    pub state: State,
    /// Since when the worker is in its phase, or a command watches it.
    #[serde(skip_serializing_if = "is_default", with = "timestamp")]
    #[schemars(schema_with = "schema::time")]
    pub since: u64,
    /// BIOS UUID for its VM, drawn and saved before the VM is created. It identifies an incomplete VM. A stamp alone proves
    /// nothing: each account that may change a VM's settings can write one.
    #[serde(rename = "allocatedUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub allocated_uuid: Option<Uuid>,
    /// BIOS UUID of its VM, once the VM is complete.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub bios_uuid: Option<Uuid>,
    /// The public half of its join token, stored before the token is created and until it is removed. The secret half is not
    /// stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::token")]
    pub token: Option<String>,
    /// When the current or last token expires.
    #[serde(skip_serializing_if = "is_default", with = "timestamp")]
    #[schemars(schema_with = "schema::time")]
    pub expires: u64,
    /// Factor for its time limits, as it was when its VM was created.
    #[schemars(range(min = 1, max = 20))]
    pub timeout_factor: u32,
    /// How long joining took, in seconds from its power-on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub joined_seconds: Option<u64>,
    /// Why it failed, or leaves.
    #[serde(flatten)]
    pub reason: Option<Reason>,
    /// Since when its node is cordoned for removal: no new pods, and no virtual IPs of Services.
    #[serde(skip_serializing_if = "Option::is_none", with = "timestamp::option")]
    #[schemars(schema_with = "schema::time")]
    pub cordoned: Option<u64>,
    /// Since when other nodes answer for the virtual IPs of Services in its place.
    #[serde(skip_serializing_if = "Option::is_none", with = "timestamp::option")]
    #[schemars(schema_with = "schema::time")]
    pub handed_over: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(skip)]
    pub drain: Discards,
    /// The end of its VM once it has left.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(skip)]
    pub removal: Removal,
    /// Time of its node's last heartbeat before its VM was powered on again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub last_heartbeat: Option<String>,
    /// Whether its VM ran before it was powered off for a new token, and was not powered on since.
    pub was_powered_on: bool,
    /// The key with which its VM asks to join with its last token. The VM reports it before its kubelet connects, or when another
    /// machine was seen in its place. Later programs of pods may report another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub key: Option<String>,
    /// Whether another machine was seen to have joined in its place, and no new token was issued since.
    pub impersonated: bool,
    /// Its VM, stored before the VM is dismantled, removed or released. Another VM with the same BIOS UUID is a copy.
    #[serde(rename = "deletingVM", skip_serializing_if = "Option::is_none")]
    pub deleting_vm: Option<VmRef>,
    /// UUIDs of the disks that its VM held then, except volumes of storage drivers.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(schema_with = "schema::uuids")]
    pub deleting_disks: BTreeSet<Uuid>,
    /// Path of the file with the settings of its VM, where the VM was last seen. While the file exists, a VM that the vCenter
    /// does not show may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub settings: Option<String>,
    /// The vCenter's identifier of the datastore of that file. It stays if the datastore is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub datastore: Option<String>,
}

/// Of a worker for which nothing is begun.
impl Default for WorkerRecord {
    fn default() -> Self {
        Self {
            name: String::new(),
            id: Uuid::nil(),
            template: Template::default(),
            address: None,
            state: State::Provisioning,
            since: 0,
            allocated_uuid: None,
            bios_uuid: None,
            token: None,
            expires: 0,
            timeout_factor: 1,
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
}

impl WorkerRecord {
    /// The next worker of a pool, with the last given number. Nothing is begun for it.
    pub(super) fn new(pool: &Pool, id: Uuid, address: Option<Ipv4Addr>, since: u64) -> Self {
        let (name, template) = (pool.machine_name(pool.last_index), pool.template.clone());
        Self { name, id, template, address, since, ..Self::default() }
    }

    /// Whether it names its worker, and what the worker is made like. A record in a file does.
    pub(super) fn is_whole(&self) -> bool {
        !(is_default(&self.name) || is_default(&self.id) || is_default(&self.template))
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

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
