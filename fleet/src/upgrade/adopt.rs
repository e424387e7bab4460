//! Takes VMs that were imported by hand into a deployment. Each node's own statements, over the pinned CA, are shown
//! with the hypervisor's, for an operator to confirm. From then on the VMs carry the stamp.

use std::net::Ipv4Addr;

use anyhow::{Context, bail};
use serde::Serialize;
use uuid::Uuid;

use super::Deployment;
use super::notice::Notice;
use crate::cancel::unless_cancelled;
use crate::engine::{GuardedHypervisor, Scope, guarded};
use crate::hypervisor::{PowerState, Stamp, Vm, named_twice, uuids_of};
use crate::lease::TakeOver;
use crate::nodes::clean;

/// A node and the VM that it runs in.
#[derive(Clone, Debug, Serialize)]
pub struct Adoption {
    pub node: String,
    /// Where its endpoint listens.
    pub address: Ipv4Addr,
    /// The BIOS UUID that the node says, in the order in which the hypervisor shows it.
    pub uuid: Uuid,
    /// The VM that the hypervisor has under it.
    pub vm: Vm,
}

impl Deployment<'_> {
    /// The nodes whose VMs carry no stamp, each with its VM; changes nothing.
    ///
    /// # Errors
    /// When a node does not answer. When no VM or several have the BIOS UUID that it says. When the VM is another
    /// deployment's, or is not where the deployment's VMs are searched. When the journal in the place is another
    /// deployment's, or that of a cluster which is being destroyed.
    pub async fn adoptable(&self) -> anyhow::Result<Vec<Adoption>> {
        self.is_its_place().await?;
        self.may_be_upgraded().await?;
        let deployment = self.hypervisor.deployment();
        let mut adoptions = Vec::new();
        for (node, address) in self.nodes.control_nodes().await? {
            let facts = self.nodes.facts(address).await.with_context(|| format!("asking {node}"))?;
            if facts.node != node {
                bail!("at {address} is {}, and Kubernetes says {node}", facts.node);
            }
            let holder = facts.holder.with_context(|| format!("{node} does not know its BIOS UUID"))?;
            let mut vms = Vec::new();
            for uuid in uuids_of(holder) {
                vms.extend(self.hypervisor.with_bios_uuid(uuid).await.context("looking for a VM by its BIOS UUID")?);
            }
            if let Some(twice) = named_twice(&vms, Some(holder)) {
                bail!("{node}: {twice}");
            }
            let vm = match <[Vm; 1]>::try_from(vms) {
                Ok([vm]) => vm,
                Err(vms) if vms.is_empty() => {
                    bail!(
                        "{node} reports the BIOS UUID {holder}, and the hypervisor has no such VM: is it the right one?"
                    )
                }
                Err(vms) => {
                    let names: Vec<String> = vms.iter().map(|vm| clean(&vm.name)).collect();
                    bail!("{} have the BIOS UUID {holder} of {node}: one is a copy of the other", names.join(" and "))
                }
            };
            let uuid = vm.uuid();
            if vm.power != PowerState::On {
                bail!("the node {node} answers, yet its VM {vm} is {}: a copy of it runs somewhere", vm.power);
            }
            let disks = vm.data_disks().count();
            if disks != 1 {
                bail!("the VM {vm}, which {node} reports as its own, holds {disks} data disks; it must be exactly one");
            }
            if let Some(other) = adoptions.iter().find(|other: &&Adoption| other.uuid == uuid) {
                bail!("{} and {node} report the same BIOS UUID {uuid}", other.node);
            }
            match &vm.stamp {
                // Adopted already. If its VM was moved since, the error says where it is.
                Some(stamp) if stamp.deployment == deployment && stamp.node == node => {
                    self.hypervisor.may_be_stamped(&vm).await?;
                }
                Some(stamp) => {
                    bail!("the VM {vm} of {node} is stamped as {} of the deployment {}", stamp.node, stamp.deployment)
                }
                None => {
                    self.hypervisor.may_be_stamped(&vm).await?;
                    adoptions.push(Adoption { node, address, uuid, vm });
                }
            }
        }
        Ok(adoptions)
    }

    /// Stamps the VMs as this deployment's.
    ///
    /// # Errors
    /// When another command holds the deployment, or the hypervisor refuses; and [`crate::Cancelled`] when it was asked
    /// to end. Some may be stamped then: run again, it goes on.
    pub async fn adopt(&self, adoptions: &[Adoption], over: TakeOver) -> anyhow::Result<()> {
        let hold = self.take(over).await?;
        let stamped = async {
            // The confirmed VMs are looked at again: one may have been replaced meanwhile.
            let now = unless_cancelled(&self.cancelled, self.adoptable()).await??;
            let hypervisor = GuardedHypervisor::new(self.hypervisor, &hold, Some(&self.cancelled));
            for Adoption { node, vm, .. } in adoptions {
                let same = now.iter().any(|other| other.node == *node && other.vm.reference == vm.reference);
                if !same {
                    bail!("{node} no longer runs in the VM {vm}; nothing further was stamped");
                }
                let stamp = Stamp { deployment: self.hypervisor.deployment(), node: node.clone(), swap: None };
                // The VM carries no stamp yet: an operator has confirmed that it is this deployment's.
                let call = hypervisor.open(Scope::Stamp(&stamp))?;
                let stamped = guarded(&call, hypervisor.stamp(vm, &stamp, &call)).await?;
                stamped.with_context(|| format!("stamping the VM {vm}"))?;
                self.tell(&Notice::Stamped { node, vm });
            }
            Ok(())
        }
        .await;
        hold.release().await;
        stamped
    }
}
