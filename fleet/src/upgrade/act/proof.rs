//! Whether a VM that the inventory does not show is really gone, and whether a rollback can be completed.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Vms;
use crate::cancel::unless_cancelled;
use crate::hypervisor::{Absence, LastSeen, PowerState, Vm};
use crate::upgrade::context::StepContext;
use crate::upgrade::moved::{self, may_be_its};
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Action, Plan, PlannedNode, Step, base_of};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason;
use crate::upgrade::refusal::VM_MOVED;
use crate::upgrade::step_error::StepError;

/// The number of looks between two that find a VM gone.
const LOOKS_APART: u32 = 5;

impl StepContext<'_> {
    /// The nodes that a rollback leaves out, in addition to those that it leaves out already: nothing is left that
    /// could go back. All at once, while others are off, they do not keep those off; they are lost either way.
    ///
    /// Otherwise fails unless every node that would go back still has its old VM, or was replaced. Else some would go
    /// back, and one would be stuck half-way.
    pub(in crate::upgrade) async fn left_out(
        &self,
        plan: &Plan,
        progress: &Progress,
        only: Option<usize>,
    ) -> Result<BTreeSet<usize>, StepError> {
        let all = self.vms().await?;
        let (mut gone, mut is_any_off) = (BTreeSet::new(), false);
        for index in progress.needs_old(plan, only) {
            let node = &plan.nodes[index];
            let vms = Vms::of(node, all.clone(), progress.noted(index))?.without_strays()?;
            if let Some(old) = &vms.old {
                is_any_off |= [Some(old), vms.new.as_ref()].into_iter().flatten().all(|vm| vm.power == PowerState::Off);
                continue;
            }
            let facts = self.nodes.facts(node.address).await.ok();
            let holder = facts.and_then(|facts| facts.holder);
            if !vms.others.iter().any(|vm| vm.is_named(holder)) {
                gone.insert(index);
            }
        }
        if gone.is_empty() {
            return Ok(gone);
        }
        for index in &gone {
            self.old_is_not_moved(plan, &plan.nodes[*index]).await?;
        }
        if !progress.is_at_once(plan) || !is_any_off {
            let gone = gone.into_iter().map(|index| &plan.nodes[index]);
            let gone: Vec<String> = gone.map(|node| format!("the {} of {}", old_of(node), node.name)).collect();
            let words = format!("no rollback is possible, for what it needs is gone: {}", gone.join(", "));
            return Err(StepError::blocked(reason::VM_GONE, words));
        }
        for index in &gone {
            let node = &plan.nodes[*index];
            self.is_gone(plan, node, (&node.old_name, node.old), progress.old_seen(*index)).await?;
        }
        Ok(gone)
    }

    /// Fails unless a node's VM that the inventory does not show is gone. The hypervisor has to prove it at two looks,
    /// and the node must not answer from it.
    pub(super) async fn is_gone(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        (name, made): (&str, Uuid),
        seen: LastSeen<'_>,
    ) -> Result<(), StepError> {
        let lives = |how: &str| {
            let words = format!("the inventory does not show {name} ({made}), yet {how}: it may run");
            StepError::elsewhere(reason::VM_GONE, words)
        };
        for look in 0..2 {
            if look > 0 {
                tokio::time::sleep(self.pace * LOOKS_APART).await;
            }
            self.settle().await?;
            let with = self.look(self.hypervisor.with_bios_uuid(made)).await?;
            if let Some(vm) = with.iter().find(|vm| !vm.is_anothers(plan.deployment)) {
                let mut how = format!("there is {}", vm.name);
                if vm.is_of(plan.deployment) {
                    let place = self.place(vm).await?;
                    how += &format!(": {place}");
                }
                return Err(lives(&how));
            }
            if self.vms().await?.iter().any(|vm| vm.uuid() == made) {
                return Err(lives("it exists now"));
            }
            let nodes = [base_of(name)];
            if let Absence::Unknown(why) = self.look(self.hypervisor.absence(made, &nodes, seen)).await? {
                return Err(lives(&why));
            }
        }
        match self.nodes.facts(node.address).await {
            Ok(facts) if facts.runs_in(made) => Err(lives(&format!("{} answers from it", node.name))),
            _ => Ok(()),
        }
    }

    /// Fails if a node's old VM may exist though the inventory does not show it. It may be outside the folders that are
    /// searched for the deployment's VMs, or its settings may be unreadable. Such a VM may not be found by its UUID
    /// (terraform-provider-vsphere#382).
    pub(super) async fn old_is_not_moved(&self, plan: &Plan, node: &PlannedNode) -> Result<(), StepError> {
        // First: one that can be read from now on is found by its UUID.
        let unread = self.look(self.hypervisor.unread(&[base_of(&node.old_name)])).await?;
        let with = self.look(self.hypervisor.with_bios_uuid(node.old)).await?;
        let is_its = |vm: &&Vm| {
            let stamp = vm.stamp.as_ref();
            // A replica that backup software keeps is off, and has its own data disks.
            let may_be = may_be_its(node, vm) || vm.data_disks().next().is_none();
            may_be && stamp.is_some_and(|stamp| stamp.deployment == plan.deployment && stamp.node == node.name)
        };
        let Some(vm) = with.iter().find(is_its) else {
            return unread.map_or(Ok(()), |why| {
                let words = format!("it is unknown whether the {} of {} is gone: {why}", old_of(node), node.name);
                Err(StepError::elsewhere(reason::VM_GONE, words))
            });
        };
        let place = self.place(vm).await?;
        let words = format!("the {} of {} is not gone: {place}", old_of(node), node.name);
        Err(StepError::elsewhere(VM_MOVED, words))
    }

    /// The place of a VM of the deployment that the inventory does not show.
    async fn place(&self, vm: &Vm) -> Result<String, StepError> {
        let found = unless_cancelled(&self.cancelled, self.hypervisor.may_be_stamped(vm)).await?;
        let place = moved::place(vm, &found);
        Ok(if found.is_ok() { place } else { place + moved::IF_COPY })
    }
}

/// The old VM of a node that is gone, in words.
pub(in crate::upgrade) fn old_of(node: &PlannedNode) -> String {
    format!("VM {} ({})", node.old_name, node.old)
}

/// Whether a step depends on where the new VM is: if it is not seen there, that is no proof that it does not exist.
pub(super) fn goes_by_new(step: Step, progress: &Progress) -> bool {
    use Action::{Attach, AttachOld, DestroyNew, DetachNew, EvacuateNew, FenceNew, Gate, PowerOn, PowerOnOld, StopNew};
    let goes_by = matches!(
        step.action,
        Attach | PowerOn | Gate | EvacuateNew | StopNew | FenceNew | DetachNew | AttachOld | PowerOnOld | DestroyNew
    );
    // This program may have removed it itself.
    goes_by && !step.node.is_some_and(|node| progress.is_begun(Step::of(Action::DestroyNew, node)))
}
