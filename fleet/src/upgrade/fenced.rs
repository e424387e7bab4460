//! A hypervisor as an upgrade may use it: each change is made under a hold that was confirmed just before, and only
//! to VMs that carry the deployment's stamp.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::trouble::Unconfirmed;
use crate::authority::{Hold, Lost};
use crate::hypervisor::{DiskRef, Error, Hypervisor, Kind, Replacement, Result, ShutDown, Stamp, Vm};

/// The hypervisor, behind a hold.
pub struct Fenced<'a> {
    hypervisor: &'a dyn Hypervisor,
    hold: &'a Hold<'a>,
}

impl<'a> Fenced<'a> {
    /// The hypervisor for as long as the hold is ours.
    pub fn new(hypervisor: &'a dyn Hypervisor, hold: &'a Hold<'a>) -> Self {
        Self { hypervisor, hold }
    }

    async fn may(&self) -> Result<()> {
        may(self.hold).await
    }

    async fn may_change(&self, vm: &Vm) -> Result<()> {
        let deployment = self.hypervisor.deployment();
        if vm.stamp.as_ref().is_none_or(|stamp| stamp.deployment != deployment) {
            return Err(Error::refused(format!("the VM {vm} is not stamped as this deployment's; it is left alone")));
        }
        self.may().await
    }
}

/// Confirms the hold; what follows must be begun at once.
pub(super) async fn may(hold: &Hold<'_>) -> Result<()> {
    match hold.confirm().await {
        Ok(()) if hold.is_fresh() => Ok(()),
        Ok(()) => Err(Error::transient(anyhow::anyhow!("confirming it took too long").context(Unconfirmed))),
        Err(lost) if lost.is::<Lost>() => Err(Error::new(Kind::Fenced, lost)),
        Err(unknown) => Err(Error::transient(unknown.context(Unconfirmed))),
    }
}

#[async_trait]
impl Hypervisor for Fenced<'_> {
    fn deployment(&self) -> Uuid {
        self.hypervisor.deployment()
    }

    async fn preflight(&self) -> Result<()> {
        self.hypervisor.preflight().await
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        self.hypervisor.vms().await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.hypervisor.with_bios_uuid(uuid).await
    }

    async fn settle(&self) -> Result<()> {
        self.hypervisor.settle().await
    }

    /// The VM carries no stamp yet: an operator has confirmed that it is this deployment's.
    async fn stamp(&self, vm: &Vm, stamp: &Stamp) -> Result<()> {
        if stamp.deployment != self.deployment() {
            return Err(Error::refused("the stamp is another deployment's"));
        }
        self.may().await?;
        self.hypervisor.stamp(vm, stamp).await
    }

    /// Changes no VM.
    async fn stage(&self, ova: &Path, digest: &str) -> Result<()> {
        self.hypervisor.stage(ova, digest).await
    }

    async fn import(&self, replacement: &Replacement<'_>) -> Result<Uuid> {
        if replacement.stamp.deployment != self.deployment() {
            return Err(Error::refused("the stamp of the new VM is another deployment's"));
        }
        self.may_change(replacement.like).await?;
        self.hypervisor.import(replacement).await
    }

    async fn power_on(&self, vm: &Vm) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.power_on(vm).await
    }

    async fn shut_down(&self, vm: &Vm, limit: Duration) -> Result<ShutDown> {
        self.may_change(vm).await?;
        self.hypervisor.shut_down(vm, limit).await
    }

    async fn cut_power(&self, vm: &Vm) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.cut_power(vm).await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.connect(vm, adapter, connected).await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.detach(vm, disk).await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.attach(vm, disk).await
    }

    async fn destroy(&self, vm: &Vm) -> Result<()> {
        self.may_change(vm).await?;
        self.hypervisor.destroy(vm).await
    }
}
