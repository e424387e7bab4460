//! The replacement of a lost control-plane node by a blank VM, which another node admits.
//!
//! 1. [`Deploy::replacing`] proves that the lost VM does not run, draws the BIOS UUID of the new one, and both are recorded.
//! 2. VMs of the lost node that return are disconnected, powered off and given up. Their data disks stay.
//! 3. Another node admits the new VM with a one-time code, and the VM is created with it. If a command is killed in between, the
//!    next one removes what exists, and asks for another code, which voids the former one.
//! 4. The new VM is powered on, and joins. If it has not joined when its code has expired, it is removed with its blank disk, and
//!    another one is made: three in all.
//! 5. The node is recorded with its new VM.

use anyhow::{bail, ensure};
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, NONE_KNOWN, Node};
use super::go::Deploy;
use super::replacement_record::{ATTEMPTS, Replacement};
use super::upgraded::Upgraded;
use crate::hypervisor::Vm;

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
