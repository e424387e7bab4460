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
        let spec = ConfigSpec::of(&now).extra(STAMP, &written(stamp));
        Ok(self.client.changes(&Asking(permit)).reconfigure(&now.reference, &spec).await?)
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
