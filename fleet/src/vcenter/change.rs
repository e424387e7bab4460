//! Changes of settings, each tied to the settings that were read.

use std::collections::BTreeMap;

use vsphere::{ConfigSpec, Power};

use super::VcenterHypervisor;
use super::disks::{has_no_snapshot, is_off, kind};
use super::stamp::{self, GOING, STAMP, written};
use super::trouble::{changed, not_now};
use crate::hypervisor::{DiskKind, Error, Fence, Result, Stamp, Vm};

impl VcenterHypervisor {
    pub(super) async fn stamp_vm(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()> {
        let now = self.unchanged(vm).await?;
        if now.is_template {
            return Err(Error::refused(format!("{vm} is a template")));
        }
        if let Some(Stamp { deployment, node, .. }) = stamp::read(&now.name, &now.extra)? {
            return Err(Error::refused(format!("{vm} is stamped already, as {node} of {deployment}")));
        }
        self.would_be_found(vm, &now).await?;
        let spec = ConfigSpec::of(&now).extra(STAMP, &written(stamp));
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    /// Refuses a VM in a folder that is not searched: no look would find it there, and no privilege for it would be
    /// checked. A stamped VM may have been moved there later.
    pub(super) async fn would_be_found(&self, vm: &Vm, now: &vsphere::Vm) -> Result<()> {
        if now.folder.as_ref().is_some_and(|folder| self.is_searched(folder)) {
            return Ok(());
        }
        let place = self.folder_words(now).await?;
        Err(Error::refused(format!(
            "{vm} is in {place}, which is not among the deployment's folders that are searched: move it into one of them, or \
             name its folder in other-folders"
        )))
    }

    /// The folder of a VM, for messages.
    async fn folder_words(&self, vm: &vsphere::Vm) -> Result<String> {
        let Some(folder) = &vm.folder else { return Ok("a vApp".to_owned()) };
        let seen = self.client.look(folder, &["name"]).await?;
        Ok(format!("the folder {}", seen.text("name")))
    }

    pub(super) async fn connect_adapter(&self, vm: &Vm, key: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        let adapter = key.parse().ok().and_then(|key| now.devices.adapter(key));
        let adapter = adapter.ok_or_else(|| Error::not_found(format!("{vm} has no network adapter {key}")))?;
        let spec = ConfigSpec::of(&now).connect(adapter, connected, now.power);
        if !connected {
            self.leave_off(&now, permit).await?;
        }
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    /// Gives up a VM in one request that is tied to the settings that were read. Before that, the VM is removed from
    /// the rule that separates the deployment's VMs. vCenter does that by itself only for a destroyed VM.
    pub(super) async fn release_vm(&self, vm: &Vm, name: &str, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        is_off(vm, &now)?;
        has_no_snapshot(vm, &now, "would restore its former state if one were used")?;
        let volumes = now.devices.disks.iter().filter(|disk| kind(&now, disk) == DiskKind::Foreign);
        let volumes: Vec<&str> = volumes.map(|disk| disk.path.as_deref().unwrap_or(&disk.label)).collect();
        if !volumes.is_empty() {
            let words = format!("the VM {vm} holds {}: volumes are detached from it first", volumes.join(", "));
            return Err(not_now(words));
        }
        if let Some(adapter) = now.devices.adapters.iter().find(|adapter| adapter.start_connected) {
            return Err(changed(format!("the network adapter {} of {vm} is connected at power-on", adapter.key)));
        }
        let stamp = stamp::read(&now.name, &now.extra)?.ok_or_else(|| Error::refused(format!("{vm} has no stamp")))?;
        let mut spec = ConfigSpec::of(&now).name(name).extra(STAMP, &written(&stamp.released()));
        if now.extra.get(GOING).is_some() {
            spec = spec.extra(GOING, "");
        }
        if now.managed_by.is_some() {
            spec = spec.managed_by_nobody();
        }
        self.let_go(&now, permit).await?;
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    pub(super) async fn give_properties(
        &self,
        vm: &Vm,
        properties: &BTreeMap<String, String>,
        permit: &dyn Fence,
    ) -> Result<()> {
        let now = self.as_seen(vm).await?;
        if now.power != Power::Off {
            return Err(Error::refused(format!("{vm} is {}: its form is filled in while it is off", now.power)));
        }
        let values = properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let spec = ConfigSpec::of(&now).properties(&now.properties, values)?;
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }
}
