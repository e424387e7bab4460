//! What vSphere HA does with a deployment's VMs after their host has failed: it starts them in an order, and one that was
//! disconnected not at all.
//!
//! These are wishes: where vCenter does not take one, that is logged, and the VM is powered on or disconnected all the same.

use vsphere::RestartPriority;

use super::VcenterHypervisor;
use super::trouble::{Asking, granted};
use crate::hypervisor::{Fence, Result};

impl VcenterHypervisor {
    /// Before a VM is powered on: it is started again as it is wanted.
    pub(super) async fn start_again(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        if !self.places.changes_cluster() {
            if let Some(words) = self.left_off(vm).await {
                log::warn!("{words}");
            }
            return Ok(());
        }
        let wanted = self.places.restart;
        let wish = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(()) };
            let now = self.client.restart_priority(&cluster, &vm.reference).await?;
            // Where nothing is wanted, what a person has set stays; what disconnecting has set is this program's.
            if wanted.is_some() || now == Some(RestartPriority::Disabled) {
                self.client.changes(&Asking(permit)).set_restart_priority(&cluster, &vm.reference, wanted).await?;
            }
            Ok(())
        };
        granted(wish.await, &format!("when {} is started after a failure of its host", vm.name))
    }

    /// That nobody starts a VM again, in words, where the cluster of hosts is left as it is: an upgrade may have set that by another
    /// description of the cluster. What cannot be seen is nothing to tell: for this alone an account needs no right there.
    pub(super) async fn left_off(&self, vm: &vsphere::Vm) -> Option<String> {
        let look = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(None) };
            Result::Ok(self.client.restart_priority(&cluster, &vm.reference).await?)
        };
        match look.await {
            Ok(Some(RestartPriority::Disabled)) => Some(format!(
                "vSphere HA does not start {} after a failure of its host: an upgrade has set that, or a person; see to it in vSphere Client",
                vm.name
            )),
            Ok(_) => None,
            Err(error) => {
                log::debug!("looking what vSphere HA does with {}: {error}", vm.name);
                None
            }
        }
    }

    /// When a VM is disconnected: nobody starts it again.
    pub(super) async fn leave_off(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        if !self.places.changes_cluster() {
            return Ok(());
        }
        let wish = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(()) };
            let disabled = Some(RestartPriority::Disabled);
            self.client.changes(&Asking(permit)).set_restart_priority(&cluster, &vm.reference, disabled).await?;
            Ok(())
        };
        granted(wish.await, &format!("that nobody starts {} after a failure of its host", vm.name))
    }
}
