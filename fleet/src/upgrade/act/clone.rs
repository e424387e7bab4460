//! The steps before the first node is touched, and the creation and removal of VMs.
//!
//! A node's new VM is a clone. From the command to vCenter's task:
//!
//! 1. `Deployment::apply_to` reads the inventory, decides the plan, acquires the lease and begins the journal.
//! 2. `Run::take` writes the step `Action::CloneVm` and the BIOS UUID of the new VM to the journal.
//! 3. [`StepContext::clone_vm`] removes the incomplete VM of an interrupted run, and finds or imports the template.
//! 4. `GuardedHypervisor::open` checks the stamps. The call that it returns confirms the lease before each request.
//! 5. `Hypervisor::clone_vm` is called. `vcenter/clone.rs` reads the place, the networks and the settings of the new VM.
//! 6. vsphere's `Changes::clone_vm` sends `CloneVM_Task`, and waits for the end of the task.
//! 7. `vcenter/clone.rs` compares the clone with the template and with its settings.
//! 8. `Run::take` writes the result to the journal.
//!
//! A run that was interrupted after step 2 continues with step 3 and the same BIOS UUID.

use uuid::Uuid;

use super::{Taken, Vms, held};
use crate::engine::{Scope, guarded};
use crate::hypervisor::{self, CloneRequest, CloneSettings, ImageTemplate, PowerState, Stamp, Vm};
use crate::upgrade::context::StepContext;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::reason::{self, DISK_HELD, VM_STATE};
use crate::upgrade::snapshot_name::before_swap;
use crate::upgrade::step_error::StepError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// From the OVA, which was read and verified for it now.
    Read,
    /// It was imported before: its OVA was not read now.
    ImportedBefore,
}

/// The known facts of an image, and no more.
fn verified(source: Source, signer: Option<&str>) -> String {
    const BEFORE: &str = "imported before, from an OVA with the plan's digest, which was not read again; the OVA that was planned with is";
    match (source, signer) {
        (Source::Read, Some(signer)) => format!("whole, signed with {signer}"),
        (Source::Read, None) => "whole; not signed".to_owned(),
        (Source::ImportedBefore, Some(signer)) => format!("{BEFORE} signed with {signer}"),
        (Source::ImportedBefore, None) => format!("{BEFORE} not signed"),
    }
}

impl StepContext<'_> {
    pub(super) async fn verify(&self, plan: &Plan) -> Taken {
        let vms = self.vms().await?;
        let old = vms.iter().find(|vm| plan.nodes.iter().any(|node| node.old == vm.uuid()));
        let Some(old) = old else {
            for node in &plan.nodes {
                self.old_is_not_moved(plan, node).await?;
            }
            return Err(StepError::refused(reason::VM_GONE, "all VMs of the plan are gone"));
        };
        let (_, source) = self.template(plan, old).await?;
        Ok(verified(source, plan.target.signer.as_deref()))
    }

    /// The template of the plan's image where the VM that replaces `like` is to be. An imported one needs no file: its
    /// signer was judged with the plan, and the hypervisor vouches for its bytes. Otherwise the OVA is verified and
    /// imported, each time again: the file may have been replaced since.
    async fn template(&self, plan: &Plan, like: &Vm) -> Result<(ImageTemplate, Source), StepError> {
        let (placement, digest) = (&plan.options.placement, &plan.target.digest);
        if let Some(ready) = self.look(self.hypervisor.find_template(digest, Some(like), placement)).await? {
            return Ok((ready, Source::ImportedBefore));
        }
        let (target, ova) = (plan.target.clone(), self.ova(plan).to_owned());
        let verified = tokio::task::spawn_blocking(move || target.verify(&ova)).await;
        let verified =
            verified.map_err(|error| StepError::pause(reason::HERE, format!("verifying the OVA: {error}")))?;
        verified.map_err(|error| StepError::refused(reason::OVA, format!("{error:#}")))?;
        let call = self.hypervisor.call();
        let import = self.hypervisor.import_template(self.ova(plan), digest, Some(like), placement, &call);
        let imported = guarded(&call, import).await?;
        Ok((imported?, Source::Read))
    }

    pub(super) async fn snapshot(&self, plan: &Plan) -> Taken {
        let (snapshots, name) = (self.snapshots, before_swap(plan.id));
        let kept = async { snapshots.kept(&name).await.map_err(|error| StepError::store(&error)) };
        if let Some(place) = self.look(kept).await? {
            return Ok(format!("{place} exists"));
        }
        let room = snapshots.spool().await;
        let directory =
            room.map_err(|error| StepError::pause(reason::HERE, format!("making room for the snapshot: {error:#}")))?;
        let pulled = directory.path().join(&name);
        // Any node's will do; a leader has the most to do.
        let node = plan.nodes.iter().find(|node| !node.leads).unwrap_or(&plan.nodes[0]);
        let size = self.while_wanted(self.nodes.snapshot(node.address, &pulled, &snapshots.room())).await?;
        let place = snapshots.keep(&name, &pulled).await.map_err(|error| StepError::store(&error))?;
        Ok(format!("{place}: {size} bytes, SHA-256 verified"))
    }

    /// Creates the new VM, with the BIOS UUID that was drawn for it. One of an interrupted run may be incomplete: it
    /// is created again.
    pub(super) async fn clone_vm(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        vms: &Vms,
        drawn: Uuid,
    ) -> Result<(String, Uuid), StepError> {
        if let Some(left) = &vms.new {
            removable(left)?;
            self.destroy(left).await?.map_err(|error| error.context(format!("removing half of {left}")))?;
        }
        let old = vms.old_vm()?;
        let (template, _) = self.template(plan, old).await?;
        let request = CloneRequest {
            name: &node.new_name,
            uuid: drawn,
            image: &template,
            settings: CloneSettings::Replaces { vm: old, size: plan.options.size },
            stamp: Stamp { deployment: plan.deployment, node: node.name.clone(), swap: Some(node.swap) },
            placement: &plan.options.placement,
        };
        let call = self.hypervisor.open(Scope::Clone(&request))?;
        let uuid = guarded(&call, self.hypervisor.clone_vm(&request, &call)).await??;
        Ok((format!("{} ({uuid}), off, without a data disk", node.new_name), uuid))
    }

    async fn destroy(&self, vm: &Vm) -> Result<hypervisor::Result<()>, StepError> {
        let call = self.open(vm)?;
        Ok(guarded(&call, self.hypervisor.destroy(vm, &call)).await?)
    }

    /// Removes the new VM, or what an interrupted run left of it.
    pub(super) async fn destroy_new(&self, node: &PlannedNode, vms: &Vms) -> Taken {
        let Some(new) = &vms.new else { return Ok("it does not exist".to_owned()) };
        removable(new)?;
        if vms.old.as_ref().is_some_and(|old| old.disk(node.disk.uuid).is_none()) {
            let words = format!("{} does not hold the disk of {}; {new} stays until it does", node.old_name, node.name);
            return Err(StepError::pause(DISK_HELD, words));
        }
        self.destroy(new).await??;
        Ok(format!("{} is removed", new.name))
    }

    /// Removes the old VM, which is no longer needed: the node's disk is another VM's, and that VM runs.
    pub(super) async fn destroy_old(&self, plan: &Plan, node: &PlannedNode, vms: &Vms) -> Taken {
        let Some(old) = &vms.old else {
            self.old_is_not_moved(plan, node).await?;
            return Ok("it does not exist".to_owned());
        };
        removable(old)?;
        let successors = vms.new.iter().chain(&vms.others);
        let runs = |vm: &Vm| vm.power == PowerState::On && vm.data_disks().next().is_some();
        if !successors.into_iter().any(runs) {
            let words = format!("no other VM of {} runs with a data disk; {old} stays until one does", node.name);
            return Err(StepError::pause(DISK_HELD, words));
        }
        self.destroy(old).await??;
        Ok(format!("{} is removed", old.name))
    }
}

/// A VM that may be removed is off and has nothing that could go with it.
fn removable(vm: &Vm) -> Result<(), StepError> {
    if vm.power != PowerState::Off {
        let words = format!("{vm} is {}; only a VM that is off is removed", vm.power);
        return Err(StepError::pause(VM_STATE, words));
    }
    let held = held(vm);
    if !held.is_empty() {
        let words = format!("{vm} holds the disks {}, which would go with it", held.join(", "));
        return Err(StepError::pause(DISK_HELD, words));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_image_is_not_called_signed() {
        for signer in [Some("the key 1a2b"), None] {
            let (read, before) = (verified(Source::Read, signer), verified(Source::ImportedBefore, signer));
            assert!(read.starts_with("whole"), "{read}");
            assert!(before.starts_with("imported before") && before.contains("was not read again"), "{before}");
            assert!(!before.contains("whole"), "{before}");
        }
    }
}
