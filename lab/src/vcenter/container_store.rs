//! Records of a vCenter's bodies: one directory for each, as a lab has for its VMs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::super::records::{self, LabDirectory};
use super::vm_container::VmContainer;

pub struct ContainerStore {
    directory: LabDirectory,
}

impl ContainerStore {
    /// The bodies in the directory of a vCenter.
    pub fn of(directory: LabDirectory) -> Self {
        Self { directory }
    }

    fn record(&self, key: &str) -> PathBuf {
        self.directory.vm(key).join("body.json")
    }

    pub fn save(&self, body: &VmContainer) -> anyhow::Result<()> {
        records::save(&self.record(&body.key), body)
    }

    /// Reads a body's record, if it exists. Fails on an unreadable one: the resources of the body are unknown.
    pub fn recall(&self, key: &str) -> anyhow::Result<Option<VmContainer>> {
        let path = self.record(key);
        let there = path.try_exists().with_context(|| format!("looking for {}", path.display()))?;
        there.then(|| records::load(&path)).transpose()
    }

    /// All bodies, on and off.
    pub fn all(&self) -> anyhow::Result<Vec<VmContainer>> {
        let keys = self.directory.vms()?;
        keys.iter().filter_map(|key| self.recall(key).transpose()).collect()
    }

    /// The CD-ROM with the environment of a body's power-on.
    pub fn cdrom(&self, key: &str) -> PathBuf {
        self.directory.cdrom(key)
    }

    /// Writes the line of a power-on to the console log.
    pub fn mark_power_on(&self, key: &str) -> anyhow::Result<()> {
        self.directory.mark_power_on(key)
    }

    /// Removes all files of a body that is off.
    pub fn forget(&self, key: &str) -> anyhow::Result<()> {
        let path = self.directory.vm(key);
        fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))
    }
}
