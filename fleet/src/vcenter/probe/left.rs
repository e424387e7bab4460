//! Removal of what a probe has made, by this run or by an earlier one that was killed.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vsphere::{ConfigSpec, DatastorePath, MoRef, Outcome, Power};

use super::Probe;
use crate::hypervisor::{DiskRef, Error, ErrorKind, Hypervisor as _, Result};
use crate::vcenter::stamp::{self, GOING};
use crate::vcenter::trouble::changed;

/// The file that exists as long as a First Class Disk of the probe may exist. It contains the ID of the disk once that is known.
pub(super) const OBJECT: &str = "first-class-disk";
/// The begin of the names of files. Each notes the BIOS UUID of a VM, and contains the path of its `.vmx` once vCenter has made it.
const MADE: &str = "probe-vm-";
/// The ends of the names of files that belong to a disk and describe none.
const EXTENTS: [&str; 4] = ["-flat.vmdk", "-delta.vmdk", "-sesparse.vmdk", "-ctk.vmdk"];

impl Probe<'_> {
    /// Removes all that exists of this folder's probes. Returns what it cannot remove, with the reason.
    pub(super) async fn remove_all(&self) -> Vec<String> {
        // A task that still runs makes a removal fail, which is reported.
        let _ = self.hypervisor.settle(self.permit).await;
        let mut left = Vec::new();
        let removed = self.remove_vms(&mut left).await;
        keep(&mut left, "the VMs of the probe", removed);
        keep(&mut left, "the First Class Disk", self.remove_object().await);
        keep(&mut left, "an incomplete template", self.hypervisor.tidy("", self.permit).await);
        // A linked clone that stays needs the disks of its template.
        if left.is_empty() {
            keep(&mut left, "the template", self.remove_templates().await);
        }
        left
    }

    /// Notes a VM before it is requested, and again once vCenter has made it.
    pub(super) async fn note(&self, uuid: &str, settings: Option<&str>) -> Result<()> {
        Ok(self.directory.write(&format!("{MADE}{uuid}"), settings.unwrap_or("-"), &self.permit).await?)
    }

    async fn noted(&self) -> Result<BTreeMap<Uuid, String>> {
        let mut noted = BTreeMap::new();
        for file in self.directory.listed().await?.unwrap_or_default() {
            if let Some(Ok(uuid)) = file.name.strip_prefix(MADE).map(Uuid::parse_str) {
                noted.insert(uuid, self.directory.read(&file.name, 4096).await?.unwrap_or_default());
            }
        }
        Ok(noted)
    }

    /// Destroys the noted VMs, and then removes their directories. A VM that only has the stamp may be a copy that a user has made by hand.
    async fn remove_vms(&self, left: &mut Vec<String>) -> Result<()> {
        let (noted, stamped) = (self.noted().await?, self.hypervisor.all_own().await?);
        let is_noted = |vm: &vsphere::Vm| vm.bios_uuid.parse().is_ok_and(|uuid: Uuid| noted.contains_key(&uuid));
        let is_only = |vm: &vsphere::Vm| stamped.iter().filter(|other| other.bios_uuid == vm.bios_uuid).count() == 1;
        let mut directories: BTreeSet<_> = noted.values().filter_map(|path| directory_of(path)).collect();
        for vm in &stamped {
            if is_noted(vm) && is_only(vm) {
                directories.extend(self.directories(vm));
                keep(left, &vm.name, self.remove_vm(vm).await);
            } else {
                left.push(format!(
                    "{}: it has the probe's stamp, and may be a copy: remove it, or its entry {}",
                    vm.name,
                    stamp::STAMP
                ));
            }
        }
        for (folder, _) in &self.hypervisor.places.folders {
            let unread = self.client.entries_in(folder, false, &[]).await?.unread.into_iter();
            left.extend(
                unread.filter(|vm| vm.name.starts_with(&self.name)).map(|vm| format!("{}: {}", vm.name, vm.error)),
            );
        }
        // A detached disk stays in the directory of its first VM, and another VM may hold it.
        if left.is_empty() {
            for directory in directories {
                keep(left, &directory.to_string(), self.remove_directory(&directory).await);
            }
        }
        if left.is_empty() {
            for uuid in noted.keys() {
                self.directory.remove_file(&format!("{MADE}{uuid}"), &self.permit).await?;
            }
        }
        Ok(())
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

    /// The directories of a VM and of the disks that were made for it.
    fn directories(&self, vm: &vsphere::Vm) -> Vec<DatastorePath> {
        let disks = vm.devices.disks.iter().filter(|disk| self.is_own(disk)).filter_map(|disk| disk.path.as_ref());
        disks.chain([&vm.vmx_path]).filter_map(|path| directory_of(path)).collect()
    }

    /// Removes the probe's disks that no VM holds from the directory of a VM that is gone, and then the directory, if it is empty.
    async fn remove_directory(&self, directory: &DatastorePath) -> Result<()> {
        let datastore = self.hypervisor.datastore_named(&directory.datastore).await?;
        let files = match self.client.files(&datastore, directory, "*").await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(()),
            files => files?,
        };
        let is_disk = |name: &str| name.ends_with(".vmdk") && !EXTENTS.iter().any(|end| name.ends_with(end));
        for file in files.iter().filter(|file| file.name.starts_with(&self.name) && is_disk(&file.name)) {
            let path = directory.join(&file.name).to_string();
            let uuid =
                self.uuid_at(&path).await?.parse().map_err(|error| Error::refused(format!("{path}: {error}")))?;
            self.hypervisor.remove_disk(&DiskRef { uuid, path }, self.permit).await?;
        }
        let has_settings = files.iter().any(|file| file.name.ends_with(".vmx"));
        let is_lock = |name: &str| name.starts_with(&self.name) && name.ends_with(".vmx.lck") && !has_settings;
        for file in files.iter().filter(|file| is_lock(&file.name)) {
            self.changes().delete_file(&directory.join(&file.name), &self.hypervisor.places.datacenter).await?;
        }
        let removed = self.hypervisor.try_remove_emptied(self.hypervisor.deployment, directory, self.permit).await;
        let files = match self.client.files(&datastore, directory, "*").await {
            Err(error) if error.outcome() == Outcome::NotFound => return removed,
            files => files?,
        };
        if files.iter().any(|file| !file.name.starts_with('.')) {
            return Err(changed("it has files that the probe did not make: move them".to_owned()));
        }
        // vSAN keeps files such as `.sf` in each directory, and moves none.
        match removed {
            Err(error) if error.kind == ErrorKind::Fenced => return Err(error),
            Err(error) => log::warn!("{directory} is empty and stays: {error}"),
            Ok(()) => log::warn!("{directory} is empty and stays"),
        }
        Ok(())
    }

    async fn remove_object(&self) -> Result<()> {
        let Some(id) = self.directory.read(OBJECT, 4096).await? else { return Ok(()) };
        let (changes, datastore) = (self.changes(), self.datastore());
        if Uuid::parse_str(&id).is_ok() {
            match changes.delete_storage_object(&id, datastore).await {
                Err(error) if error.outcome() == Outcome::NotFound => {}
                deleted => deleted?,
            }
        } else {
            while let Some(object) = self.client.storage_object_named(&self.name, datastore).await? {
                changes.delete_storage_object(&object.id, datastore).await?;
            }
        }
        Ok(self.directory.remove_file(OBJECT, &self.permit).await?)
    }

    async fn remove_templates(&self) -> Result<()> {
        for note in self.hypervisor.laid.all().await? {
            let Some(seal) = &note.seal else {
                return Err(changed(format!("{} is incomplete: remove it in vSphere Client", note.name)));
            };
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

/// The directory of a file; none for a file at the top of a datastore.
fn directory_of(path: &str) -> Option<DatastorePath> {
    path.parse::<DatastorePath>().ok()?.parent().filter(|directory| !directory.path.is_empty())
}

fn keep(left: &mut Vec<String>, what: &str, result: Result<()>) {
    left.extend(result.err().map(|error| format!("{what}: {error}")));
}
