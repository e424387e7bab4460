//! Where it is kept what a vCenter's bodies are: one directory for each, as a lab keeps its VMs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::super::records::{self, LabDirectory};
use super::vm_container::VmContainer;

/// The bodies of one vCenter.
pub struct ContainerStore {
    directory: LabDirectory,
}

impl ContainerStore {
    /// Those in the directory of a vCenter.
    pub fn of(directory: LabDirectory) -> Self {
        Self { directory }
    }

    fn record(&self, key: &str) -> PathBuf {
        self.directory.vm(key).join("body.json")
    }

    /// Remembers a body.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, body: &VmContainer) -> anyhow::Result<()> {
        records::save(&self.record(&body.key), body)
    }

    /// Recalls a body, if there is one.
    ///
    /// # Errors
    /// When there is a record that cannot be read: what the body has is not known then.
    pub fn recall(&self, key: &str) -> anyhow::Result<Option<VmContainer>> {
        let path = self.record(key);
        let there = path.try_exists().with_context(|| format!("looking for {}", path.display()))?;
        there.then(|| records::load(&path)).transpose()
    }

    /// All bodies, those that are off as well.
    ///
    /// # Errors
    /// When the directory cannot be read, or a record.
    pub fn all(&self) -> anyhow::Result<Vec<VmContainer>> {
        let keys = self.directory.vms()?;
        keys.iter().filter_map(|key| self.recall(key).transpose()).collect()
    }

    /// The CD-ROM with the environment that a body was started with.
    pub fn cdrom(&self, key: &str) -> PathBuf {
        self.directory.cdrom(key)
    }

    /// Notes in the console log that it is being powered on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mark_power_on(&self, key: &str) -> anyhow::Result<()> {
        self.directory.mark_power_on(key)
    }

    /// Removes all that is kept of a body that is off.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(&self, key: &str) -> anyhow::Result<()> {
        let path = self.directory.vm(key);
        fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))
    }
}
