//! Removal of what a probe has made, by this run or by an earlier one that was killed.

use std::collections::BTreeSet;

use vsphere::{ConfigSpec, DatastorePath, MoRef, Outcome, Power};

use super::Probe;
use crate::hypervisor::{Hypervisor as _, Result};
use crate::vcenter::stamp::{self, GOING};
use crate::vcenter::trouble::changed;

/// The file that exists as long as a First Class Disk of the probe may exist.
pub(super) const OBJECT: &str = "first-class-disk";

impl Probe<'_> {
    /// Removes all that exists of this folder's probes. Returns what it cannot remove, with the reason.
    pub(super) async fn remove_all(&self) -> Vec<String> {
        // A task that still runs makes a removal fail, which is reported.
        let _ = self.hypervisor.settle(self.permit).await;
        let (own, mut left) = (self.hypervisor.all_own().await, Vec::new());
        for vm in own.iter().flatten() {
            keep(&mut left, &vm.name, self.remove_vm(vm).await);
        }
        // A detached disk stays in the directory of its first VM, and another VM of the probe may hold it.
        let directories = own.iter().flatten().flat_map(|vm| self.directories(vm)).filter(|_| left.is_empty());
        for directory in directories.collect::<BTreeSet<_>>() {
            keep(&mut left, &directory.to_string(), self.remove_directory(&directory).await);
        }
        keep(&mut left, "the VMs of the probe", own.map(drop));
        keep(&mut left, "the First Class Disk", self.remove_object().await);
        keep(&mut left, "an incomplete template", self.hypervisor.tidy("", self.permit).await);
        keep(&mut left, "the template", self.remove_templates().await);
        left
    }

    /// Destroys a VM with its own disks. The request before that detaches all others, and fails if the VM was changed meanwhile.
    async fn remove_vm(&self, vm: &vsphere::Vm) -> Result<()> {
        if vm.power != Power::Off {
            self.changes().power_off(&vm.reference).await?;
        }
        let now = self.client.vm_with(&vm.reference, &stamp::READ).await?;
        let others = now.devices.disks.iter().filter(|disk| !self.is_own(disk));
        self.reconfigure(&now, others.fold(ConfigSpec::of(&now).extra(GOING, "yes"), ConfigSpec::detach)).await?;
        Ok(self.changes().destroy(&vm.reference).await?)
    }

    /// Whether a disk was made for a VM of the probe: vCenter names the file after the VM.
    fn is_own(&self, disk: &vsphere::Disk) -> bool {
        let file = disk.path.as_deref().and_then(|path| path.rsplit(['/', ' ']).next());
        disk.first_class.is_none() && file.is_some_and(|file| file.starts_with(&self.name))
    }

    /// The directories of a VM and of its own disks.
    fn directories(&self, vm: &vsphere::Vm) -> Vec<DatastorePath> {
        let disks = vm.devices.disks.iter().filter(|disk| self.is_own(disk)).filter_map(|disk| disk.path.as_ref());
        let files = disks.chain([&vm.vmx_path]).filter_map(|path| path.parse::<DatastorePath>().ok()?.parent());
        files.filter(|directory| !directory.path.is_empty()).collect()
    }

    async fn remove_directory(&self, directory: &DatastorePath) -> Result<()> {
        match self.changes().delete_file(directory, &self.hypervisor.places.datacenter).await {
            Err(error) if error.outcome() == Outcome::NotFound => Ok(()),
            gone => Ok(gone?),
        }
    }

    async fn remove_object(&self) -> Result<()> {
        if self.directory.read(OBJECT, 1).await?.is_none() {
            return Ok(());
        }
        while let Some(object) = self.client.storage_object_named(&self.name, self.datastore()).await? {
            self.changes().delete_storage_object(&object.id, self.datastore()).await?;
        }
        Ok(self.directory.remove_file(OBJECT, &self.asking).await?)
    }

    async fn remove_templates(&self) -> Result<()> {
        for note in self.hypervisor.laid.all().await? {
            let Some(seal) = &note.seal else { return Err(changed(format!("{} is incomplete, and stays", note.name))) };
            let template = self.client.vm(&MoRef::vm(&seal.reference)).await?;
            if !template.is_template || template.bios_uuid != note.uuid.to_string() {
                return Err(changed(format!("{} is not the template of the probe", template.name)));
            }
            self.changes().destroy(&template.reference).await?;
            self.hypervisor.laid.forget(&note, self.permit).await?;
        }
        Ok(())
    }
}

fn keep(left: &mut Vec<String>, what: &str, result: Result<()>) {
    left.extend(result.err().map(|error| format!("{what}: {error}")));
}
