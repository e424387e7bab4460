//! Changes of settings, each tied to the settings that were seen.

use std::collections::BTreeMap;

use vsphere::{ConfigSpec, Power};

use super::VcenterHypervisor;
use super::stamp::{self, STAMP, written};
use super::trouble::Asking;
use crate::hypervisor::{Error, Permit, Result, Stamp, Vm};

impl VcenterHypervisor {
    pub(super) async fn stamp_vm(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Permit) -> Result<()> {
        let now = self.unchanged(vm).await?;
        if now.is_template {
            return Err(Error::refused(format!("{vm} is a template")));
        }
        if let Some(Stamp { deployment, node, .. }) = stamp::read(&now.name, &now.extra)? {
            return Err(Error::refused(format!("{vm} is stamped already, as {node} of {deployment}")));
        }
        self.would_be_found(vm, &now).await?;
        let spec = ConfigSpec::of(&now).extra(STAMP, &written(stamp));
        Ok(self.client.changes(&Asking(permit)).reconfigure(&now.reference, &spec).await?)
    }

    /// Refuses a VM that is in no folder which is searched: no look would find it there, and whoever may change it would be asked for
    /// nothing.
    pub(super) async fn would_be_found(&self, vm: &Vm, now: &vsphere::Vm) -> Result<()> {
        if now.folder.as_ref().is_some_and(|folder| self.is_searched(folder)) {
            return Ok(());
        }
        let place = self.folder_words(now).await?;
        Err(Error::refused(format!(
            "{vm} is in {place}, which is not among the deployment's folders and would not be searched for it: name \
             the folder among those of other VMs, or move the VM"
        )))
    }

    /// The folder of a VM, for people.
    async fn folder_words(&self, vm: &vsphere::Vm) -> Result<String> {
        let Some(folder) = &vm.folder else { return Ok("a vApp".to_owned()) };
        let seen = self.client.look(folder, &["name"]).await?;
        Ok(format!("the folder {}", seen.text("name")))
    }

    pub(super) async fn connect_adapter(&self, vm: &Vm, key: &str, connected: bool, permit: &dyn Permit) -> Result<()> {
        let now = self.as_seen(vm).await?;
        let adapter = key.parse().ok().and_then(|key| now.devices.adapter(key));
        let adapter = adapter.ok_or_else(|| Error::not_found(format!("{vm} has no network adapter {key}")))?;
        let spec = ConfigSpec::of(&now).connect(adapter, connected, now.power);
        if !connected {
            self.leave_off(&now, permit).await?;
        }
        Ok(self.client.changes(&Asking(permit)).reconfigure(&now.reference, &spec).await?)
    }

    pub(super) async fn give_properties(
        &self,
        vm: &Vm,
        properties: &BTreeMap<String, String>,
        permit: &dyn Permit,
    ) -> Result<()> {
        let now = self.as_seen(vm).await?;
        if now.power != Power::Off {
            return Err(Error::refused(format!("{vm} is {}: its form is filled in while it is off", now.power)));
        }
        let values = properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let spec = ConfigSpec::of(&now).properties(&now.properties, values)?;
        Ok(self.client.changes(&Asking(permit)).reconfigure(&now.reference, &spec).await?)
    }
}
