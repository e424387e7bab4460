//! What a cluster of hosts does with a deployment's VMs by itself: a rule keeps them on different hosts, and vSphere HA starts
//! them again in an order, or not at all.
//!
//! Both are wishes: where vCenter does not take one, that is logged, and the VM is powered on or disconnected all the same.

use vsphere::{MoRef, RestartPriority};

use super::VcenterHypervisor;
use super::trouble::Asking;
use crate::hypervisor::{Error, Kind, Permit, Result};

/// What the cluster of hosts is to do with the VMs. With nothing of it, the cluster's settings are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Together {
    /// The name of the rule that keeps them on different hosts, where there are enough of them; none without one.
    pub apart: Option<String>,
    /// When they are started after their host has failed, if not as the cluster says for all.
    pub restart: Option<RestartPriority>,
}

impl Together {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl VcenterHypervisor {
    /// The same, with what the cluster of hosts is to do with the VMs.
    #[must_use]
    pub fn keeping(self, together: Together) -> Self {
        Self { together, ..self }
    }

    /// Before a VM is powered on: it is kept apart from the deployment's others, and started again as it is wanted.
    pub(super) async fn keep(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        if self.together.is_nothing() {
            return Ok(());
        }
        wished(self.try_to_keep(vm, permit).await, &format!("what the cluster of hosts does with {}", vm.name))
    }

    async fn try_to_keep(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        let Some(cluster) = self.cluster_of(vm).await? else { return Ok(()) };
        let asking = Asking(permit);
        let changes = self.client.changes(&asking);
        if let Some(rule) = &self.together.apart {
            let mut vms = Vec::new();
            for own in self.all_own().await? {
                if own.pool == vm.pool || self.cluster_of(&own).await?.as_ref() == Some(&cluster) {
                    vms.push(own.reference);
                }
            }
            // A rule of one is none, and refused.
            if vms.len() > 1 {
                changes.keep_apart(&cluster, rule, &vms).await?;
            }
        }
        let now = self.client.restart_priority(&cluster, &vm.reference).await?;
        // What is not this program's wish is a person's, and stays; that of a VM which was fenced is this program's.
        if now == Some(RestartPriority::Disabled) || self.together.restart.is_some() {
            changes.set_restart_priority(&cluster, &vm.reference, self.together.restart).await?;
        }
        Ok(())
    }

    /// When a VM is disconnected: nobody starts it again.
    pub(super) async fn forsake(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        if self.together.is_nothing() {
            return Ok(());
        }
        let forsaken = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(()) };
            let disabled = Some(RestartPriority::Disabled);
            self.client.changes(&Asking(permit)).set_restart_priority(&cluster, &vm.reference, disabled).await?;
            Ok(())
        };
        wished(forsaken.await, &format!("that nobody starts {} again", vm.name))
    }

    /// Before a VM is destroyed: with the last one the rule goes.
    pub(super) async fn leave(&self, vm: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        let Some(rule) = &self.together.apart else { return Ok(()) };
        let left = async {
            let is_last = self.all_own().await?.iter().all(|own| own.reference == vm.reference);
            let Some(cluster) = self.cluster_of(vm).await?.filter(|_| is_last) else { return Ok(()) };
            self.client.changes(&Asking(permit)).remove_rule(&cluster, rule).await?;
            Ok(())
        };
        wished(left.await, &format!("that the rule {rule} goes"))
    }

    /// The cluster that a VM runs in; none of a host by itself.
    async fn cluster_of(&self, vm: &vsphere::Vm) -> Result<Option<MoRef>> {
        let Some(pool) = &vm.pool else { return Ok(None) };
        let owner = self.client.look(pool, &["owner"]).await?.reference_at("owner");
        Ok(owner.filter(|owner| owner.kind == "ClusterComputeResource"))
    }
}

/// A wish that is not granted stops nothing; who may change nothing more is told.
fn wished(granted: Result<()>, what: &str) -> Result<()> {
    match granted {
        Err(Error { kind: Kind::Fenced, source }) => Err(Error { kind: Kind::Fenced, source }),
        Err(error) => {
            log::warn!("vCenter does not take {what}: {error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
