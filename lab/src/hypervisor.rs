//! The lab as the hypervisor of an upgrade: VMs by BIOS UUID.

use std::fs;
use std::time::Duration;

use anyhow::{Context, bail};
use uuid::Uuid;

use super::records::VmRecord;
use super::{Lab, NewVm, Source, Unpacked, cache_directory};
use fleet::upgrade::PowerState;
use fleet::upgrade::{Hypervisor, ReplacementVm, Vm};

impl Lab {
    fn record(&self, vm: Uuid) -> anyhow::Result<VmRecord> {
        let records = self.records()?;
        records
            .into_iter()
            .find(|record| record.uuid == vm)
            .with_context(|| format!("the lab {} has no VM with the BIOS UUID {vm}", self.name))
    }

    /// The VMs; one that a crash left without a record is none yet.
    fn records(&self) -> anyhow::Result<Vec<VmRecord>> {
        Ok(self.directory.vms()?.iter().filter_map(|name| self.directory.load_vm(name).ok()).collect())
    }

    fn name_of(&self, vm: Uuid) -> anyhow::Result<String> {
        Ok(self.record(vm)?.name)
    }
}

impl Hypervisor for Lab {
    fn vms(&self) -> anyhow::Result<Vec<Vm>> {
        let look = |record: VmRecord| {
            let VmRecord { name, uuid, disks, nic_connected, .. } = record;
            Ok(Vm { power: Lab::power_state(self, &name)?, name, uuid, disks, nic_connected })
        };
        self.records()?.into_iter().map(look).collect()
    }

    fn import(&self, replacement: &ReplacementVm<'_>) -> anyhow::Result<Uuid> {
        let node = self.plan().nodes.iter().find(|planned| planned.name == replacement.node);
        let Some(node) = node else { bail!("the lab {} was not made with a node {}", self.name, replacement.node) };
        let like = self.record(replacement.like)?;
        let unpacked =
            Unpacked::ensure(replacement.ova, &cache_directory()?, &self.tools(), &|what| log::info!("{what}"))?;
        let left = self.directory.vm(replacement.name);
        if left.exists() && self.directory.load_vm(replacement.name).is_err() {
            fs::remove_dir_all(&left).with_context(|| format!("removing {}", left.display()))?;
        }
        Lab::import(
            self,
            &NewVm {
                name: replacement.name.to_owned(),
                memory: like.memory,
                processors: like.processors,
                data_disk: None,
                network_interface: true,
                properties: node.properties.clone(),
                source: Some(Source::Ova { unpacked }),
                engine: self.replacements(),
            },
        )?;
        Ok(self.directory.load_vm(replacement.name)?.uuid)
    }

    fn power_on(&self, vm: Uuid) -> anyhow::Result<()> {
        Lab::power_on(self, &self.name_of(vm)?)
    }

    fn shut_down(&self, vm: Uuid, limit: Duration) -> anyhow::Result<()> {
        Lab::shut_down(self, &self.name_of(vm)?, limit)
    }

    fn cut_power(&self, vm: Uuid) -> anyhow::Result<()> {
        Lab::cut_power(self, &self.name_of(vm)?)
    }

    fn power_state(&self, vm: Uuid) -> anyhow::Result<PowerState> {
        Lab::power_state(self, &self.name_of(vm)?)
    }

    fn connect_nic(&self, vm: Uuid, connected: bool) -> anyhow::Result<()> {
        Lab::connect_nic(self, &self.name_of(vm)?, connected)
    }

    fn detach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()> {
        Lab::detach_disk(self, &self.name_of(vm)?, disk)
    }

    fn attach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()> {
        Lab::attach_disk(self, &self.name_of(vm)?, disk)
    }

    fn destroy(&self, vm: Uuid) -> anyhow::Result<()> {
        Lab::destroy(self, &self.name_of(vm)?)
    }
}
