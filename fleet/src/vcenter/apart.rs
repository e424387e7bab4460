//! A rule of the cluster that keeps the deployment's VMs on different hosts. It is made and renewed before a VM is powered on; one
//! that is destroyed is taken out of it before, and the rule goes with the last but one.

use vsphere::MoRef;

use super::VcenterHypervisor;
use super::trouble::Asking;
use crate::hypervisor::{Permit, Result};

impl VcenterHypervisor {
    /// The rule's name: people see it in vSphere Client.
    fn rule(&self) -> String {
        format!("kaas-{}: on different hosts", self.deployment)
    }

    /// Lets the rule have all VMs of the deployment, if it is wanted and there are two.
    pub(super) async fn keep_apart(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        let Some(cluster) = self.ruled_cluster_of(vm).await? else { return Ok(()) };
        let vms: Vec<MoRef> = self.all_own().await?.into_iter().map(|vm| vm.reference).collect();
        if vms.len() > 1 {
            self.client.changes(&Asking(permit)).keep_apart(&cluster, &self.rule(), &vms).await?;
        }
        Ok(())
    }

    /// Takes a VM out of the rule that is about to be destroyed. With one VM left the rule goes: it takes two.
    pub(super) async fn let_go(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        let Some(cluster) = self.ruled_cluster_of(vm).await? else { return Ok(()) };
        let own = self.all_own().await?.into_iter().map(|own| own.reference);
        let others: Vec<MoRef> = own.filter(|own| *own != vm.reference).collect();
        let asking = Asking(permit);
        let changes = self.client.changes(&asking);
        if others.len() > 1 {
            changes.keep_apart(&cluster, &self.rule(), &others).await?;
        } else {
            changes.remove_rule(&cluster, &self.rule()).await?;
        }
        Ok(())
    }

    /// The cluster whose settings are for a VM; none where its host is in no cluster.
    pub(super) async fn cluster_of(&self, vm: &vsphere::Vm) -> Result<Option<MoRef>> {
        let Some(pool) = &vm.pool else { return Ok(None) };
        let owner = self.client.look(pool, &["owner"]).await?.reference_at("owner");
        Ok(owner.filter(|owner| owner.kind == "ClusterComputeResource"))
    }

    /// The same, where a rule is wanted.
    async fn ruled_cluster_of(&self, vm: &vsphere::Vm) -> Result<Option<MoRef>> {
        if self.places.different_hosts { self.cluster_of(vm).await } else { Ok(None) }
    }
}
