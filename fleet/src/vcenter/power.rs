//! Power. These calls can only look first: vCenter itself refuses to power on a VM that is on, and the reverse.

use std::time::Duration;

use contract::deployer::Fingerprints;
use contract::statement::Statement;
use vsphere::{ConfigSpec, Power};

use super::VcenterHypervisor;
use super::disks::is_off;
use super::trouble::changed;
use crate::hypervisor::{Fence, Result, ShutDown, Vm};

impl VcenterHypervisor {
    pub(super) async fn switch_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        is_off(vm, &now)?;
        self.forget_said(&now, permit).await?;
        self.keep_apart(&now, permit).await?;
        self.start_again(&now, permit).await?;
        let vms = [now.reference];
        let changes = self.client.changes(&permit);
        Ok(self.telling_questions(&vms, changes.power_on(&vms[0])).await?)
    }

    /// Removes the guest's earlier statements. guestinfo may outlive a power cycle (open-vm-tools issue 288), and
    /// readers would take it for new. A VM that vSphere HA or the operator powers on keeps it until its guest writes
    /// again: the statements fit its unchanged properties.
    async fn forget_said(&self, now: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        let keys = [Statement::GUESTINFO, Fingerprints::GUESTINFO];
        let extra = self.client.vm_with(&now.reference, &keys).await?.extra;
        let said: Vec<&str> = keys.into_iter().filter(|key| extra.get(key).is_some()).collect();
        if said.is_empty() {
            return Ok(());
        }
        let spec = said.into_iter().fold(ConfigSpec::of(now), |spec, key| spec.extra(key, ""));
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    pub(super) async fn ask_to_shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let now = self.as_seen(vm).await?;
        match now.power {
            Power::Off => return Ok(ShutDown::Off),
            Power::On => {}
            Power::Suspended | Power::Unknown => return Err(changed(format!("the VM {vm} is {}", now.power))),
        }
        let vms = [now.reference];
        let changes = self.client.changes(&permit);
        Ok(match self.telling_questions(&vms, changes.shut_down(&vms[0], limit)).await? {
            vsphere::ShutDown::Off => ShutDown::Off,
            vsphere::ShutDown::StillOn => ShutDown::StillOn,
            vsphere::ShutDown::CannotBeAsked => ShutDown::CannotBeAsked,
        })
    }

    pub(super) async fn switch_off(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        if now.power == Power::Off {
            return Ok(());
        }
        let vms = [now.reference];
        let changes = self.client.changes(&permit);
        Ok(self.telling_questions(&vms, changes.power_off(&vms[0])).await?)
    }
}
