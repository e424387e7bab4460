//! Rows about First Class Disks. They are attached as volumes will be: by path, outside snapshots, in a request that is tied to the VM's
//! settings.

use vsphere::{ConfigSpec, DiskMode, ExistingDisk, NewStorageObject, StorageObject};

use super::Probe;
use super::answer::{Failed, Tried, fault, judged, word};
use crate::vcenter::disks::first_controller;
use crate::vcenter::trouble::Asking;

/// Its size in MiB, before and after it grows.
const MIB: (u64, u64) = (16, 32);

impl Probe<'_> {
    fn object(&self) -> Result<StorageObject, Failed> {
        self.object.clone().ok_or_else(|| Failed::NotTried("no First Class Disk was made".to_owned()))
    }

    pub(super) async fn object_made(&mut self) -> Tried {
        self.note(|notes| notes.has_object = true).await?;
        let (name, datastore) = (self.name.clone(), self.datastore().clone());
        let new = NewStorageObject { name: &name, datastore: &datastore, mib: MIB.0 };
        let made = self.client.changes(&Asking(self.permit)).create_storage_object(&new).await?;
        let found = self.client.storage_object(&made.id, &datastore).await?;
        let is_so = (&found.name, found.mib, found.stays) == (&name, MIB.0, true);
        self.object = Some(made);
        judged(is_so, if is_so { "found by its identifier, as it was asked for" } else { "not as it was asked for" })
    }

    /// Attaches the disk to a VM; the VM afterwards.
    async fn attach_object(&self, vm: &vsphere::Vm) -> Result<vsphere::Vm, Failed> {
        let object = self.client.storage_object(&self.object()?.id, self.datastore()).await?;
        // A controller of volumes, where there is one.
        let controller = vm.devices.controllers.iter().find(|one| one.is_scsi() && one.bus == 1);
        let controller = controller.or_else(|| first_controller(vm));
        let controller = controller.ok_or_else(|| Failed::NotTried("there is no SCSI controller".to_owned()))?;
        let existing = ExistingDisk { path: &object.path, controller, mode: DiskMode::IndependentPersistent };
        let spec = ConfigSpec::of(vm).attach(&existing)?;
        self.client.changes(&Asking(self.permit)).reconfigure(&vm.reference, &spec).await?;
        Ok(self.client.vm(&vm.reference).await?)
    }

    /// The disk as a VM holds it; by its identifier, or by its path where that is not shown.
    fn held<'v>(vm: &'v vsphere::Vm, object: &StorageObject) -> Result<&'v vsphere::Disk, Failed> {
        let is_it = |disk: &&vsphere::Disk| {
            disk.first_class.as_ref() == Some(&object.id) || disk.path.as_ref() == Some(&object.path)
        };
        vm.devices.disks.iter().find(is_it).ok_or_else(|| Failed::NotTried("the VM does not hold the disk".to_owned()))
    }

    pub(super) async fn object_attached(&mut self) -> Tried {
        let object = self.object()?;
        let vm = self.attach_object(&self.linked().await?).await?;
        let disk = Self::held(&vm, &object)?;
        let is_shown = disk.first_class.as_ref() == Some(&object.id);
        let (shown, power) = (if is_shown { "shown" } else { "not shown" }, vm.power);
        judged(
            is_shown,
            format!("attached while the VM is {power}; its identifier is {shown}; mode {}", word(&disk.mode)),
        )
    }

    pub(super) async fn object_uuid(&mut self) -> Tried {
        let (object, vm) = (self.object()?, self.linked().await?);
        let disk = Self::held(&vm, &object)?;
        let saw = match &disk.uuid {
            None => "none is shown",
            Some(uuid) if *uuid == object.id.to_ascii_lowercase() => "shown, and the same as its identifier",
            Some(_) => "shown, another than its identifier",
        };
        judged(disk.uuid.is_some(), saw)
    }

    pub(super) async fn object_snapshot(&mut self) -> Tried {
        let (object, vm) = (self.object()?, self.linked().await?);
        Self::held(&vm, &object)?;
        let asking = Asking(self.permit);
        let (changes, datastore) = (self.client.changes(&asking), self.datastore());
        let made = changes.snapshot_storage_object(&object.id, datastore, &self.name).await?;
        changes.delete_disk_snapshot(&object.id, datastore, &made).await?;
        judged(true, "made and deleted while it is attached")
    }

    pub(super) async fn object_extended(&mut self) -> Tried {
        let (object, vm) = (self.object()?, self.linked().await?);
        Self::held(&vm, &object)?;
        let asking = Asking(self.permit);
        self.client.changes(&asking).extend_storage_object(&object.id, self.datastore(), MIB.1).await?;
        let (now, vm) = (self.client.storage_object(&object.id, self.datastore()).await?, self.linked().await?);
        let seen = Self::held(&vm, &object)?.capacity >> 20;
        judged((now.mib, seen) == (MIB.1, MIB.1), format!("{} MiB by its identifier, {seen} MiB in the VM", now.mib))
    }

    pub(super) async fn object_detached(&mut self) -> Tried {
        let (object, vm) = (self.object()?, self.linked().await?);
        let spec = ConfigSpec::of(&vm).detach(Self::held(&vm, &object)?);
        self.client.changes(&Asking(self.permit)).reconfigure(&vm.reference, &spec).await?;
        let stays = self.client.storage_object(&object.id, self.datastore()).await.is_ok();
        judged(stays, if stays { "it stays" } else { "it is not found by its identifier" })
    }

    /// The method that was made for it, of which the program makes no use.
    pub(super) async fn object_by_method(&mut self) -> Tried {
        let (object, vm) = (self.object()?, self.linked().await?);
        let controller = vm.devices.controllers.iter().find(|one| one.is_scsi() && one.bus == 1);
        let controller = controller.or_else(|| first_controller(&vm));
        let controller = controller.ok_or_else(|| Failed::NotTried("there is no SCSI controller".to_owned()))?;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        changes.attach_storage_object(&vm.reference, &object.id, self.datastore(), controller).await?;
        let mode = Self::held(&self.linked().await?, &object)?.mode.clone();
        changes.detach_storage_object(&vm.reference, &object.id).await?;
        judged(mode == "persistent", format!("mode {}", word(&mode)))
    }

    pub(super) async fn object_held(&mut self) -> Tried {
        let object = self.object()?;
        let vm = self.attach_object(&self.full().await?).await?;
        Self::held(&vm, &object)?;
        let asking = Asking(self.permit);
        fault(self.client.changes(&asking).delete_storage_object(&object.id, self.datastore()).await, &["InvalidState"])
    }

    /// The VM is destroyed as a person destroys it: the program itself refuses one that holds such a disk.
    pub(super) async fn object_outlives(&mut self) -> Tried {
        let (object, full) = (self.object()?, self.full().await?);
        Self::held(&full, &object)?;
        if let Some(disk) = &self.disk
            && let Some(held) = full.devices.disk(&disk.uuid.to_string())
        {
            let spec = ConfigSpec::of(&full).detach(held);
            self.client.changes(&Asking(self.permit)).reconfigure(&full.reference, &spec).await?;
        }
        self.client.changes(&Asking(self.permit)).destroy(&full.reference).await?;
        self.full = None;
        let stays = self.client.storage_object(&object.id, self.datastore()).await.is_ok();
        judged(stays, if stays { "it stays" } else { "it is gone" })
    }

    pub(super) async fn object_deleted(&mut self) -> Tried {
        let object = self.object()?;
        self.client.changes(&Asking(self.permit)).delete_storage_object(&object.id, self.datastore()).await?;
        fault(self.client.storage_object(&object.id, self.datastore()).await, &["NotFound"])
    }
}
