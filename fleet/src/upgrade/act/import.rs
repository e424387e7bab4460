//! What comes before the first node is touched, and the making of new VMs.

use anyhow::{Context, anyhow};
use uuid::Uuid;

use super::{Taken, Vms};
use crate::hypervisor::{PowerState, Replacement, Staged, Stamp, Vm};
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::run::{Run, Trouble};

impl Run<'_> {
    pub(super) async fn verify(&self, plan: &Plan) -> Taken {
        self.staged(plan).await?;
        Ok(match &plan.target.signer {
            Some(signer) => format!("whole, signed with {signer}"),
            None => "whole; not signed".to_owned(),
        })
    }

    /// Verifies the OVA and lays it ready; from then on it is the hypervisor that vouches for its bytes.
    async fn staged(&self, plan: &Plan) -> Result<Staged, Trouble> {
        let (target, ova) = (plan.target.clone(), self.ova(plan).to_owned());
        let verified = tokio::task::spawn_blocking(move || target.verify(&ova)).await;
        verified.context("verifying the OVA")?.map_err(Trouble::Refused)?;
        let (ova, target) = (self.ova(plan), &plan.target);
        Ok(self.hypervisor.stage(ova, &target.digest, &plan.options.placement).await?)
    }

    pub(super) async fn snapshot(&self, plan: &Plan) -> Taken {
        let (store, name) = (self.hold.store(), format!("before-{}.db", plan.id));
        if let Some(place) = store.kept(&name).await? {
            return Ok(format!("{place} is there"));
        }
        let directory = tempfile::tempdir().context("making room for the snapshot")?;
        let pulled = directory.path().join(&name);
        // Any node's will do; a leader has the most to do.
        let node = plan.nodes.iter().find(|node| !node.leads).unwrap_or(&plan.nodes[0]);
        let size = self.nodes.snapshot(node.address, &pulled).await?;
        let place = store.keep(&name, &pulled).await?;
        Ok(format!("{place}: {size} bytes, SHA-256 verified"))
    }

    /// Makes the new VM. One that an interrupted import has left is not trusted to be whole: it is made anew. The
    /// OVA is verified each time: the file may have been replaced since.
    pub(super) async fn import(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        vms: &Vms,
        again: bool,
    ) -> Result<(String, Uuid), Trouble> {
        for left in vms.new.iter().chain(&vms.left) {
            if !again {
                return Err(Trouble::Refused(anyhow!("there is a VM {left} already that was made for this swap")));
            }
            removable(left)?;
            self.hypervisor.destroy(left).await.map_err(|error| error.context(format!("removing half of {left}")))?;
        }
        let staged = self.staged(plan).await?;
        let old = vms.old_vm()?;
        let replacement = Replacement {
            name: &node.new_name,
            image: &staged,
            like: old,
            stamp: Stamp { deployment: plan.deployment, node: node.name.clone(), swap: Some(node.swap) },
            placement: &plan.options.placement,
        };
        let uuid = self.hypervisor.import(&replacement).await?;
        Ok((format!("{} ({uuid}), off, without a data disk", node.new_name), uuid))
    }

    /// Removes the new VM, and what interrupted imports have left of others.
    pub(super) async fn destroy_new(&self, node: &PlannedNode, vms: &Vms) -> Taken {
        let mut removed = Vec::new();
        for new in vms.new.iter().chain(&vms.left) {
            removable(new)?;
            if vms.old.as_ref().is_some_and(|old| old.disk(node.disk.uuid).is_none()) {
                return Err(anyhow!(
                    "{} does not hold the disk of {}; {new} stays until it does",
                    node.old_name,
                    node.name
                )
                .into());
            }
            self.hypervisor.destroy(new).await?;
            removed.push(new.name.clone());
        }
        Ok(if removed.is_empty() {
            "there is none".to_owned()
        } else {
            format!("{} is removed", removed.join(" and "))
        })
    }

    /// Removes the old VM, which nobody needs any more: the node's disk is another VM's, and that VM runs.
    pub(super) async fn destroy_old(&self, node: &PlannedNode, vms: &Vms) -> Taken {
        let Some(old) = &vms.old else { return Ok("there is none".to_owned()) };
        removable(old)?;
        let successors = vms.new.iter().chain(&vms.others);
        let runs = |vm: &Vm| vm.power == PowerState::On && vm.data_disks().next().is_some();
        if !successors.into_iter().any(runs) {
            return Err(
                anyhow!("no other VM of {} runs with a data disk; {old} stays until one does", node.name).into()
            );
        }
        self.hypervisor.destroy(old).await?;
        Ok(format!("{} is removed", old.name))
    }
}

/// A VM that may be removed is off and has nothing that could go with it.
fn removable(vm: &Vm) -> Result<(), Trouble> {
    if vm.power != PowerState::Off {
        return Err(anyhow!("{vm} is {}; only a VM that is off is removed", vm.power).into());
    }
    let held: Vec<&str> = vm
        .disks
        .iter()
        .filter(|disk| disk.kind != crate::hypervisor::DiskKind::System)
        .map(|disk| &*disk.reference.path)
        .collect();
    if !held.is_empty() {
        return Err(anyhow!("{vm} holds the disks {}, which would go with it", held.join(", ")).into());
    }
    Ok(())
}
