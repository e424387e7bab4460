//! The replacement of a lost control-plane node by a blank VM, which another node admits.
//!
//! 1. [`Deploy::replacing`] proves that the lost VM does not run, draws the BIOS UUID of the new one, and both are recorded.
//! 2. VMs of the lost node that return are disconnected, powered off and given up. Their data disks stay.
//! 3. Another node admits the new VM with a one-time code, and the VM is created with it. If a command is killed in between, the
//!    next one removes what exists, and asks for another code, which voids the former one.
//! 4. The new VM is powered on, and joins. If it has not joined when its code has expired, it is removed with its blank disk, and
//!    another one is made: three in all.
//! 5. The node is recorded with its new VM.

use std::time::Duration;

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::action::Action;
use super::deployment_record::{DeploymentRecord, NONE_KNOWN, Node};
use super::go::Deploy;
use super::inventory::{Found, Inventory};
use super::next::{Next, odd_power, removed};
use super::reason;
use super::upgraded::Upgraded;
use super::wait::Wait;
use crate::hypervisor::{DiskRef, PowerState, Stamp, Vm};
use crate::{schema, timestamp};

/// How many new VMs one replacement makes.
pub const ATTEMPTS: u32 = 3;

/// How long a new VM may take to join. Its code is valid for an hour, and may be used in the last minute.
const JOINING: Duration = Duration::from_secs(70 * 60);

/// The replacement of a lost control-plane node that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Name of the node.
    #[schemars(schema_with = "schema::label")]
    pub node: String,
    /// Why the lost VM does not run.
    #[schemars(schema_with = "schema::sentence")]
    pub evidence: String,
    /// Number of the new VM, from 1. Three are made at most.
    #[schemars(range(min = 1, max = 3))]
    pub attempt: u32,
    /// BIOS UUID for the new VM, recorded before the VM is created.
    #[serde(rename = "allocatedUUID")]
    #[schemars(schema_with = "schema::uuid")]
    pub allocated_uuid: Uuid,
    /// When another node admitted the new VM, in seconds of Unix time. Recorded once the VM is complete: an incomplete VM has a
    /// code that is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub admitted: Option<u64>,
    /// Whether the new VM was ever powered on.
    #[serde(default)]
    pub started: bool,
    /// UUID of the new VM's data disk, recorded before it is first powered on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub data_disk: Option<Uuid>,
}

impl Replacement {
    fn begin(node: &str, evidence: String, attempt: u32, drawn: Uuid) -> Self {
        Self {
            node: node.to_owned(),
            evidence,
            attempt,
            allocated_uuid: drawn,
            admitted: None,
            started: false,
            data_disk: None,
        }
    }

    /// Name of the new VM: another one than the lost VM's, which the inventory may still have.
    pub(super) fn vm_name(&self) -> String {
        let drawn = self.allocated_uuid.simple().to_string();
        format!("{}-{}", self.node, drawn.get(..7).unwrap_or_default())
    }

    /// The stamp of the new VM. It differs from that of the lost one.
    pub(super) fn stamp(&self, deployment: Uuid) -> Stamp {
        Stamp { deployment, node: self.node.clone(), swap: Some(self.allocated_uuid) }
    }

    /// Until when the new VM may join, in seconds of Unix time. `None` before it is complete.
    fn ends(&self) -> Option<u64> {
        Some(self.admitted?.saturating_add(JOINING.as_secs()))
    }
}

impl DeploymentRecord {
    /// Refuses the replacement of a node that is not one of several, or while another one is replaced.
    fn may_replace(&self, node: &str) -> anyhow::Result<&Node> {
        let Some(lost) = self.node(node) else {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            bail!("the cluster {} has no control-plane node {node}; it has {}", self.cluster, names.join(", "));
        };
        ensure!(
            self.nodes.len() > 2,
            "{node} is one of {} control-plane nodes: without it etcd has no quorum. Restore the cluster from a snapshot",
            self.nodes.len()
        );
        if let Some(open) = self.replacement.as_ref().filter(|open| open.node != node) {
            bail!("{} is being replaced: wait until it has joined", open.node);
        }
        Ok(lost)
    }

    /// The record once the replacement of a node has begun. From then on its former VMs are given up.
    pub(super) fn replacing(&self, replacement: Replacement, former: impl IntoIterator<Item = Uuid>) -> Self {
        let mut kept = self.clone();
        for vm in former {
            if !kept.replaced_vms.contains(&vm) {
                kept.replaced_vms.push(vm);
            }
        }
        kept.replacement = Some(replacement);
        kept
    }

    /// The record with another new VM for the node that is being replaced.
    pub(super) fn drawing_again(&self, drawn: Uuid, attempt: u32) -> Self {
        let mut kept = self.clone();
        if let Some(open) = kept.replacement.take() {
            kept.replacement = Some(Replacement::begin(&open.node, open.evidence, attempt, drawn));
        }
        kept
    }

    /// The record once the new VM has joined.
    pub(super) fn replaced(&self) -> Self {
        let mut kept = self.clone();
        let Some(open) = kept.replacement.take() else { return kept };
        let Some(node) = self.node(&open.node).cloned() else { return kept };
        kept.with(Node {
            secret_hash: None,
            allocated_uuid: Some(open.allocated_uuid),
            bios_uuid: Some(open.allocated_uuid),
            ever_powered_on: true,
            disk: Some(open.data_disk.unwrap_or(NONE_KNOWN)),
            ..node
        })
    }

    /// Whether a VM is the new one of a node that is being replaced.
    pub(super) fn is_replacement(&self, vm: Uuid) -> bool {
        self.replacement.as_ref().is_some_and(|open| open.allocated_uuid == vm)
    }
}

impl Deploy<'_> {
    /// The record once the replacement of a node is the goal. An open one continues.
    pub(super) async fn replacing(
        &self,
        kept: DeploymentRecord,
        upgraded: &Upgraded,
        vms: &[Vm],
        (node, host_is_off, retries): (&str, Option<&str>, bool),
    ) -> anyhow::Result<DeploymentRecord> {
        let lost = kept.may_replace(node)?;
        if let Some(open) = &kept.replacement {
            // The operator starts again once the last VM was removed.
            let has_ended = open.attempt >= ATTEMPTS
                && open.admitted.is_some()
                && !vms.iter().any(|vm| vm.uuid() == open.allocated_uuid);
            return Ok(if retries && has_ended { kept.drawing_again(self.draw(), 1) } else { kept });
        }
        let former = self.former_vms(&kept, upgraded, lost, vms);
        let evidence = self.proof_of(&kept, upgraded, lost, &former).await?.evidence(node, host_is_off)?;
        let replacement = Replacement::begin(node, evidence, 1, self.draw());
        Ok(kept.replacing(replacement, former))
    }

    /// Draws a BIOS UUID that no VM has.
    fn draw(&self) -> Uuid {
        let drawn = Uuid::new_v4();
        if let Some(unfinished) = self.restorable {
            unfinished.begins(drawn);
        }
        drawn
    }
}

/// Decides for a node that is being replaced.
pub(super) fn replaces(kept: &DeploymentRecord, open: &Replacement, seen: &Inventory, next: &mut Next) {
    let node = &open.node;
    let is_on = |node: &Node| matches!(seen.later_vm(node), Found::Vm(vm) if vm.power == PowerState::On);
    if let Some(other) = kept.nodes.iter().find(|other| other.name != *node && !is_on(other)) {
        let words = format!(
            "it is being replaced, and {} does not run either: without both, etcd has no quorum. Bring {0} back; if it is lost for \
             good, restore the cluster from a snapshot",
            other.name
        );
        next.waits.push(Wait::lasting(node, reason::NO_QUORUM, words));
        return;
    }
    let Some(Ok(ready)) = &seen.ready else {
        let words = match &seen.ready {
            Some(Err(words)) => words.as_str(),
            _ => "no other node gives credentials",
        };
        let words = format!("it is being replaced, and the cluster does not answer: {words}");
        next.waits.push(Wait::passing(node, reason::NO_QUORUM, words));
        return;
    };
    // It may have joined while the hypervisor was away, and the quorum may need it: it goes only while all others are Ready.
    let are_others_ready = kept.nodes.iter().all(|other| other.name == *node || ready.contains(&other.name));
    let late = are_others_ready && open.ends().is_some_and(|ends| seen.now >= ends);
    let vm = seen.vms.iter().find(|vm| vm.uuid() == open.allocated_uuid && vm.stamp.is_some());
    match vm {
        Some(vm) if open.started && vm.power == PowerState::On && ready.contains(node) => {
            next.actions.push(Action::Replaced(node.clone()));
        }
        // It was gone before it joined.
        None if open.admitted.is_some() && open.attempt < ATTEMPTS => {
            next.actions.push(Action::DrawAgain(node.clone()));
        }
        None if open.admitted.is_some() => {
            let words = format!(
                "{ATTEMPTS} new VMs were made for it, and none has joined: see the consoles of the other nodes, and give the \
                 command again"
            );
            next.waits.push(Wait::lasting(node, reason::REPLACEMENT_BLOCKED, words));
        }
        None => next.actions.push(Action::Replace(node.clone())),
        Some(vm) if open.admitted.is_none() || (late && vm.power == PowerState::Off) => removed(vm, next),
        Some(vm) => match vm.power {
            PowerState::Off => next.actions.push(Action::StartReplacement(node.clone())),
            PowerState::On if !open.started => next.actions.push(Action::StartReplacement(node.clone())),
            PowerState::On if late => next.actions.push(Action::PowerOff(vm.reference.clone())),
            PowerState::On => {
                let words = format!(
                    "its new VM {vm} is on, and has not joined yet: it is number {} of {ATTEMPTS}, and has time until {}",
                    open.attempt,
                    timestamp::shown(open.ends().unwrap_or_default())
                );
                next.waits.push(Wait::passing(node, reason::JOINING, words));
            }
            PowerState::Suspended | PowerState::Unknown => next.waits.push(odd_power(vm)),
        },
    }
}

/// Decides for a VM of a node that was replaced, and that has returned. One whose host does not answer is left alone.
pub(super) fn retires(vm: &Vm, next: &mut Next) {
    if vm.stamp.is_some() && vm.power != PowerState::Unknown {
        next.actions.push(Action::Retire(vm.reference.clone()));
    }
}

/// The only data disk of a VM.
pub(super) fn only_data_disk(vm: &Vm) -> Option<&DiskRef> {
    let mut held = vm.data_disks().map(|disk| &disk.reference);
    held.next().filter(|_| held.next().is_none())
}
