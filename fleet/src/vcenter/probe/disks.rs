//! Rows about a VM that runs or was just powered off, about its data disk, and about First Class Disks. These are attached as volumes will
//! be: by their path, outside snapshots, in a request that is tied to the VM's settings.

use std::time::{Duration, Instant};

use contract::statement::Statement;
use uuid::Uuid;
use vsphere::{ConfigSpec, Disk, DiskFile, DiskMode, ExistingDisk};

use super::Probe;
use super::answer::{Tried, fault, fault_of, made, saw, untried, word};
use super::left::OBJECT;
use crate::hypervisor::{DiskKind, Error, Hypervisor as _, Result, VmRef};
use crate::vcenter::disks::kind;
use crate::vcenter::look::uuid;

/// An entry that is set from outside before power-on.
const ENTRY: &str = "guestinfo.kaas.probe";
/// The buses of the SCSI controllers for volumes.
const BUSES: [i32; 3] = [1, 2, 3];
/// The size of the First Class Disk in MiB, before and after it is extended.
const MIB: (u64, u64) = (16, 32);
/// How long the probe waits for a locked disk.
const LOCKED: Duration = Duration::from_secs(60);

impl Probe<'_> {
    /// Attaches a disk by its path to the last SCSI controller.
    async fn attach(&self, vm: &vsphere::Vm, path: &str) -> Result<()> {
        let scsi = vm.devices.controllers.iter().filter(|controller| controller.is_scsi());
        let controller = scsi.max_by_key(|controller| controller.bus);
        let controller = controller.ok_or_else(|| untried("the VM has no SCSI controller"))?;
        let disk = ExistingDisk { path, controller, mode: DiskMode::IndependentPersistent };
        self.reconfigure(vm, ConfigSpec::of(vm).attach(&disk)?).await
    }

    async fn uuid_at(&self, path: &str) -> Result<String> {
        Ok(self.client.disk_uuid(DiskFile { path, datacenter: &self.hypervisor.places.datacenter }).await?)
    }

    pub(super) async fn object_made(&mut self) -> Tried {
        self.directory.write(OBJECT, "1", &self.asking).await?;
        let made = self.changes().create_storage_object(&self.name, self.datastore(), MIB.0).await?;
        let is_same = made == self.client.storage_object(&made.id, self.datastore()).await?;
        self.object = Some(made);
        saw(is_same, if is_same { "found as it was made" } else { "found with other settings" })
    }

    pub(super) async fn power_on(&mut self) -> Tried {
        let vm = self.now(&self.linked).await?;
        let spec = BUSES.into_iter().fold(ConfigSpec::of(&vm).extra(ENTRY, "outside"), ConfigSpec::scsi_controller);
        self.reconfigure(&vm, spec).await?;
        let vm = self.hypervisor.shown(self.now(&self.linked).await?).await?;
        self.hypervisor.power_on(&vm, self.permit).await?;
        saw(true, "on")
    }

    pub(super) async fn bios_uuid(&mut self) -> Tried {
        let (vm, begin, limit) = (self.now(&self.linked).await?, Instant::now(), self.setup.guest);
        let vm = VmRef { uuid: uuid(&vm)?, id: vm.reference.id };
        let stated = loop {
            let stated = self.hypervisor.statement(&vm).await?.and_then(|statement| statement.machine);
            if stated.is_some() || begin.elapsed() >= limit {
                break stated.ok_or_else(|| untried(format!("the guest states none within {} s", limit.as_secs())))?;
            }
            tokio::time::sleep(self.setup.rest).await;
        };
        self.has_stated = true;
        saw(
            stated == vm.uuid,
            match stated {
                stated if stated == vm.uuid => "the same",
                stated if stated == Uuid::from_bytes(vm.uuid.to_bytes_le()) => {
                    "the first three groups are in the other order"
                }
                _ => "another one",
            },
        )
    }

    pub(super) async fn properties_while_on(&mut self) -> Tried {
        let vm = self.now(&self.linked).await?;
        let property = vm.properties.iter().find(|property| property.is_configurable && property.is_given);
        let property = property.ok_or_else(|| untried("no property has a value"))?;
        fault(self.reconfigure(&vm, ConfigSpec::of(&vm).value_alone(property, "on")).await, "InvalidPowerState")
    }

    pub(super) async fn attach_held(&mut self) -> Tried {
        let (linked, full) = (self.now(&self.linked).await?, self.now(&self.full).await?);
        let path = path(data_disk(&linked)?);
        let attached = self.attach(&full, path).await;
        let now = self.now(&self.full).await?;
        if let Some(held) = now.devices.disks.iter().find(|disk| disk.path.as_deref() == Some(path)) {
            self.reconfigure(&now, ConfigSpec::of(&now).detach(held)).await?;
        }
        fault(attached, "FileLocked")
    }

    pub(super) async fn object_attached(&mut self) -> Tried {
        let object = made(&self.object)?;
        self.attach(&self.now(&self.linked).await?, &object.path).await?;
        let vm = self.now(&self.linked).await?;
        let disk = vm.devices.disks.iter().find(|disk| disk.path.as_ref() == Some(&object.path));
        let disk = disk.ok_or_else(|| Error::not_found("the attached disk"))?;
        let (is_shown, has_uuid) = (disk.first_class.as_ref() == Some(&object.id), disk.uuid.is_some());
        saw(is_shown, format!("the VM is {}; ID: {is_shown}, UUID: {has_uuid}, mode {}", vm.power, word(&disk.mode)))
    }

    pub(super) async fn object_snapshot(&mut self) -> Tried {
        let (object, changes) = (&made(&self.object)?.id, self.changes());
        let snapshot = changes.snapshot_storage_object(object, self.datastore(), &self.name).await?;
        changes.delete_disk_snapshot(object, self.datastore(), &snapshot).await?;
        saw(true, "made and deleted")
    }

    pub(super) async fn object_extended(&mut self) -> Tried {
        let object = made(&self.object)?;
        self.changes().extend_storage_object(&object.id, self.datastore(), MIB.1).await?;
        let now = self.client.storage_object(&object.id, self.datastore()).await?.mib;
        let disks = self.now(&self.linked).await?.devices.disks;
        let held =
            disks.iter().find(|disk| disk.path.as_ref() == Some(&object.path)).map_or(0, |disk| disk.capacity >> 20);
        saw((now, held) == (MIB.1, MIB.1), format!("{now} MiB by its identifier, {held} MiB in the VM"))
    }

    pub(super) async fn controllers_stay(&mut self) -> Tried {
        let vm = self.hypervisor.shown(self.now(&self.linked).await?).await?;
        self.hypervisor.cut_power(&vm, self.permit).await?;
        let controllers = self.now(&self.linked).await?.devices.controllers;
        let found = controllers.iter().filter(|one| one.is_scsi() && BUSES.contains(&one.bus)).count();
        saw(found == BUSES.len(), format!("{found} of {}", BUSES.len()))
    }

    pub(super) async fn guest_entry(&mut self) -> Tried {
        let entries = self.now(&self.linked).await?.extra;
        let [stays, outside] = [Statement::GUESTINFO, ENTRY].map(|key| entries.get(key).is_some());
        let words = format!("an entry from outside stays: {outside}; that of the guest: {stays}");
        if self.has_stated { saw(!stays, words) } else { Err(untried("the guest has set none")) }
    }

    pub(super) async fn disk_detached(&mut self) -> Tried {
        let vm = self.now(&self.linked).await?;
        let disk = data_disk(&vm)?.clone();
        self.reconfigure(&vm, ConfigSpec::of(&vm).detach(&disk)).await?;
        let is_same = disk.uuid == Some(self.uuid_at(path(&disk)).await?);
        self.disk = Some(disk);
        saw(is_same, if is_same { "the file stays, with its UUID" } else { "the file has another UUID" })
    }

    pub(super) async fn disk_attached(&mut self) -> Tried {
        let (disk, begin, mut tries) = (made(&self.disk)?, Instant::now(), 1);
        let is_locked = |error: &Error| fault_of(error).is_some_and(|fault| fault.is("FileLocked"));
        while let Err(error) = self.attach(&self.now(&self.full).await?, path(disk)).await {
            if !is_locked(&error) || begin.elapsed() >= LOCKED.min(self.setup.guest) {
                return Err(error);
            }
            tries += 1;
            tokio::time::sleep(self.setup.rest).await;
        }
        saw(tries == 1, format!("attached after {tries} tries in {} s", begin.elapsed().as_secs()))
    }

    pub(super) async fn disk_copied(&mut self) -> Tried {
        let (copy, datacenter) =
            (self.setup.directory.join("copy.vmdk").to_string(), &self.hypervisor.places.datacenter);
        let (from, to) = (path(made(&self.disk)?), DiskFile { path: &copy, datacenter });
        self.changes().copy_disk(DiskFile { path: from, datacenter }, to).await?;
        let has_own = self.uuid_at(from).await? != self.uuid_at(&copy).await?;
        self.changes().delete_disk(to).await?;
        saw(has_own, if has_own { "its own" } else { "that of the first disk" })
    }

    /// Destroys the linked clone as vSphere Client does. The commands refuse to destroy a VM that holds such a disk.
    pub(super) async fn object_outlives(&mut self) -> Tried {
        let (object, vm) = (made(&self.object)?, self.now(&self.linked).await?.reference);
        self.changes().destroy(&vm).await?;
        self.client.storage_object(&object.id, self.datastore()).await?;
        saw(true, "it stays")
    }
}

fn data_disk(vm: &vsphere::Vm) -> Result<&Disk> {
    let disk = vm.devices.disks.iter().find(|disk| kind(vm, disk) == DiskKind::Data);
    disk.ok_or_else(|| untried("the VM has no data disk"))
}

fn path(disk: &Disk) -> &str {
    disk.path.as_deref().unwrap_or_default()
}
