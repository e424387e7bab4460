//! The container engine: the image's root tree, units and agent in a system container, at native speed. A container
//! has neither firmware nor kernel nor verity: the guest learns that from `platform.json` alone. This module is
//! the lab's interface to the engine.

mod cgroup;
mod guest;
mod limits;
mod nspawn;
mod system_container;

use std::process::Command;

use contract::deployer::Fingerprints;
use contract::statement::Statement;

use super::credentials::read_fingerprints;
use super::disk;
use super::engine::Engine;
use super::network::{Adapter, BRIDGE, Network};
use super::process::ProcessId;
use super::records::{LabDirectory, VmRecord};
use super::shown;

pub use limits::RaisedLimit;
pub use system_container::{Disk, SystemContainer};

/// System containers of one lab.
pub struct Containers {
    lab: String,
    directory: LabDirectory,
    network: Network,
}

impl Containers {
    pub fn new(lab: &str, directory: LabDirectory, network: Network) -> Self {
        Self { lab: lab.to_owned(), directory, network }
    }

    /// The system container of a lab's VM.
    fn carried(&self, vm: &VmRecord) -> SystemContainer {
        let adapter = Adapter { mac: vm.mac.clone(), bridge: BRIDGE.to_owned(), connected: vm.nic_connected };
        SystemContainer {
            name: vm.name.clone(),
            uuid: vm.uuid,
            in_order_uuid: vm.in_order_uuid,
            tree: vm.source.tree(),
            port: vm.port.clone(),
            adapters: if vm.has_nic { vec![adapter] } else { Vec::new() },
            disks: vm.disks.iter().map(|disk| Disk { path: self.directory.disk(*disk), file: None }).collect(),
            cdrom: vm.cdrom_inserted.then(|| self.directory.cdrom(&vm.name)),
            process: vm.process.clone(),
        }
    }
}

impl Engine for Containers {
    fn start(&self, vm: &VmRecord) -> anyhow::Result<ProcessId> {
        self.power_on(&self.carried(vm))
    }

    fn ask_to_shut_down(&self, vm: &VmRecord) -> anyhow::Result<bool> {
        self.press_power_button(&self.carried(vm))
    }

    fn cut(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.cut_off(&self.carried(vm))
    }

    fn is_on(&self, vm: &VmRecord) -> bool {
        self.runs(&self.carried(vm))
    }

    fn release(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.give_back(&self.carried(vm))
    }

    fn eject_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.take_cdrom_out(&vm.name)
    }

    fn insert_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.put_cdrom_in(&vm.name, &self.directory.cdrom(&vm.name))
    }

    fn enlarge_disk(&self, vm: &VmRecord, number: usize) -> anyhow::Result<()> {
        disk::show_size(&self.directory.disk(vm.disks[number]))
    }

    fn press(&self, vm: &VmRecord, _keys: &[&str]) -> anyhow::Result<()> {
        anyhow::bail!("{} is a system container, and has no keyboard", vm.name)
    }

    fn fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>> {
        read_fingerprints(&self.fingerprints_file(&vm.name))
    }

    fn statement(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>> {
        Ok(shown::read(&self.statement_file(&vm.name))?.and_then(|text| Statement::read(&text)))
    }

    fn command_inside(&self, vm: &VmRecord, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command> {
        self.command_in(&self.carried(vm), by, arguments)
    }
}
