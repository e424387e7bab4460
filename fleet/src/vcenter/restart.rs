//! The restarts of a deployment's VMs by vSphere HA after a host failure: in an order, and not at all for a
//! disconnected VM.
//!
//! The settings are optional: if vCenter refuses one, that is logged, and the VM is still powered on or disconnected.

use vsphere::RestartPriority;

use super::VcenterHypervisor;
use super::trouble::granted;
use crate::hypervisor::{Fence, Result};

impl VcenterHypervisor {
    /// Before a power-on: sets the configured restart priority.
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
            // If no priority is configured, the operator's own stays. A setting by a disconnect is this program's, and
            // is removed.
            if wanted.is_some() || now == Some(RestartPriority::Disabled) {
                self.client.changes(&permit).set_restart_priority(&cluster, &vm.reference, wanted).await?;
            }
            Ok(())
        };
        granted(wish.await, &format!("when {} is started after a failure of its host", vm.name))
    }

    /// A message if vSphere HA does not restart a VM and this deployment leaves the cluster's settings alone. An
    /// upgrade with another cluster description may have turned the restart off. If the account cannot see the setting,
    /// it returns nothing: this check alone needs no privilege there.
    pub(super) async fn left_off(&self, vm: &vsphere::Vm) -> Option<String> {
        let look = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(None) };
            Result::Ok(self.client.restart_priority(&cluster, &vm.reference).await?)
        };
        match look.await {
            Ok(Some(RestartPriority::Disabled)) => Some(format!(
                "vSphere HA does not start {} after a failure of its host: an upgrade has set that, or an operator; see to it in \
                 vSphere Client",
                vm.name
            )),
            Ok(_) => None,
            Err(error) => {
                log::debug!("looking what vSphere HA does with {}: {error}", vm.name);
                None
            }
        }
    }

    /// When a VM is disconnected: turns its restart off.
    pub(super) async fn leave_off(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        if !self.places.changes_cluster() {
            return Ok(());
        }
        let wish = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(()) };
            let disabled = Some(RestartPriority::Disabled);
            self.client.changes(&permit).set_restart_priority(&cluster, &vm.reference, disabled).await?;
            Ok(())
        };
        granted(wish.await, &format!("that {} is not started after a failure of its host", vm.name))
    }
}
