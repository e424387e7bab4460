//! Rows about a VM that runs or was just powered off, about its data disk, and about First Class Disks. These are attached as volumes will
//! be: by their path, outside snapshots, in a request that is tied to the VM's settings.

use std::time::{Duration, Instant};

use contract::statement::Statement;
use vsphere::{ConfigSpec, Disk, DiskFile, DiskMode, ExistingDisk};

use super::Probe;
use super::answer::{fault, is_fault, made, saw, untried, word};
use super::left::OBJECT;
use super::rows::rows;
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

rows! {
    "object" "A First Class Disk is made and found by its identifier" whole |probe| {
        probe.directory.write(OBJECT, "-", &probe.permit).await?;
        let made = probe.changes().create_storage_object(&probe.name, probe.datastore(), MIB.0).await?;
        probe.directory.write(OBJECT, &made.id, &probe.permit).await?;
        let is_same = made == probe.client.storage_object(&made.id, probe.datastore()).await?;
        probe.object = Some(made);
        saw(is_same, format!("as it was made: {is_same}"))
    }
    "power-on" "The linked clone takes three more SCSI controllers and powers on" |probe| {
        let vm = probe.now(&probe.linked).await?;
        let spec = BUSES.into_iter().fold(ConfigSpec::of(&vm).extra(ENTRY, "outside"), ConfigSpec::scsi_controller);
        probe.reconfigure(&vm, spec).await?;
        let vm = probe.hypervisor.shown(probe.now(&probe.linked).await?).await?;
        probe.hypervisor.power_on(&vm, probe.permit).await?;
        saw(true, "on")
    }
    "settings-lock" "The directory of a VM that is on lists a file NAME.vmx.lck" |probe| {
        let is_listed = probe.lists_lock().await?;
        saw(is_listed, format!("listed: {is_listed}"))
    }
    "bios-uuid" "The guest states the BIOS UUID that vCenter shows" |probe| {
        let (vm, begin, limit) = (probe.now(&probe.linked).await?, Instant::now(), probe.setup.guest);
        let vm = VmRef { uuid: uuid(&vm)?, id: vm.reference.id };
        let stated = loop {
            let stated = probe.hypervisor.statement(&vm).await?.and_then(|statement| statement.machine);
            if stated.is_some() || begin.elapsed() >= limit {
                break stated.ok_or_else(|| untried("the guest stated none in time"))?;
            }
            tokio::time::sleep(probe.setup.rest).await;
        };
        probe.has_stated = true;
        let [is_same, is_swapped] = stated.orders().map(|order| order == vm.uuid);
        saw(is_same, format!("the same: {is_same}; in the other byte order: {is_swapped}"))
    }
    "properties-while-on" "Properties of a VM that is on cannot be edited: InvalidPowerState" |probe| {
        let vm = probe.now(&probe.linked).await?;
        let property = vm.properties.iter().find(|property| property.is_configurable && property.is_given);
        let property = property.ok_or_else(|| untried("no property has a value"))?;
        fault(probe.reconfigure(&vm, ConfigSpec::of(&vm).value_alone(property, "on")).await, "InvalidPowerState")
    }
    "attach-held" "A disk of a VM that is on cannot be attached to another: FileLocked" |probe| {
        let (linked, full) = (probe.now(&probe.linked).await?, probe.now(&probe.full).await?);
        let held = path(data_disk(&linked)?);
        let attached = probe.attach(&full, held).await;
        let full = probe.now(&probe.full).await?;
        if let Some(disk) = at(&full, held) {
            probe.reconfigure(&full, ConfigSpec::of(&full).detach(disk)).await?;
        }
        fault(attached, "FileLocked")
    }
    "object-attach" "ReconfigVM_Task attaches a First Class Disk by its path, and the VM shows its identifier" |probe| {
        let object = made(&probe.object)?;
        probe.attach(&probe.now(&probe.linked).await?, &object.path).await?;
        let vm = probe.now(&probe.linked).await?;
        let disk = at(&vm, &object.path).ok_or_else(|| Error::not_found("the attached disk"))?;
        let (is_shown, has_uuid) = (disk.first_class.as_ref() == Some(&object.id), disk.uuid.is_some());
        saw(is_shown, format!("the VM is {}; ID: {is_shown}, UUID: {has_uuid}, mode {}", vm.power, word(&disk.mode)))
    }
    "object-snapshot" "An attached First Class Disk outside snapshots takes a separate snapshot" |probe| {
        probe.changes().try_disk_snapshot(&made(&probe.object)?.id, probe.datastore()).await?;
        saw(true, "made and deleted")
    }
    "object-extend" "ExtendDisk_Task extends an attached First Class Disk" |probe| {
        let object = made(&probe.object)?;
        probe.changes().extend_storage_object(&object.id, probe.datastore(), MIB.1).await?;
        let now = probe.client.storage_object(&object.id, probe.datastore()).await?.mib;
        let vm = probe.now(&probe.linked).await?;
        let held = at(&vm, &object.path).map_or(0, |disk| disk.capacity >> 20);
        saw((now, held) == (MIB.1, MIB.1), format!("{now} MiB by its identifier, {held} MiB in the VM"))
    }
    "controllers-stay" "Empty SCSI controllers survive a power cycle" |probe| {
        let vm = probe.hypervisor.shown(probe.now(&probe.linked).await?).await?;
        probe.hypervisor.cut_power(&vm, probe.permit).await?;
        let controllers = probe.now(&probe.linked).await?.devices.controllers;
        let found = controllers.iter().filter(|one| one.is_scsi() && BUSES.contains(&one.bus)).count();
        saw(found == BUSES.len(), format!("{found} of {}", BUSES.len()))
    }
    "settings-lock-after-off" "The file NAME.vmx.lck goes with power-off" |probe| {
        let is_listed = probe.lists_lock().await?;
        saw(!is_listed, format!("listed: {is_listed}"))
    }
    "guest-entry-after-off" "An entry of guestinfo that the guest set goes with power-off" |probe| {
        let entries = probe.now(&probe.linked).await?.extra;
        let [stays, outside] = [Statement::GUESTINFO, ENTRY].map(|key| entries.get(key).is_some());
        let words = format!("an entry from outside stays: {outside}; that of the guest: {stays}");
        if probe.has_stated { saw(!stays, words) } else { Err(untried("the guest has set none")) }
    }
    "disk-detach" "A detached disk keeps its file and its UUID" |probe| {
        let vm = probe.now(&probe.linked).await?;
        let disk = data_disk(&vm)?.clone();
        probe.reconfigure(&vm, ConfigSpec::of(&vm).detach(&disk)).await?;
        let is_same = disk.uuid == Some(probe.uuid_at(path(&disk)).await?);
        probe.disk = Some(disk);
        saw(is_same, format!("the UUID stays: {is_same}"))
    }
    "disk-attach" "A disk of a VM that was just powered off can be attached to another VM at once" |probe| {
        let (disk, begin, mut tries) = (made(&probe.disk)?, Instant::now(), 1);
        while let Err(error) = probe.attach(&probe.now(&probe.full).await?, path(disk)).await {
            if !is_fault(&error, "FileLocked") || begin.elapsed() >= LOCKED.min(probe.setup.guest) {
                return Err(error);
            }
            tries += 1;
            tokio::time::sleep(probe.setup.rest).await;
        }
        saw(tries == 1, format!("attached after {tries} tries in {} s", begin.elapsed().as_secs()))
    }
    "disk-copy" "A copied disk has another UUID" |probe| {
        let (copy, datacenter) = (probe.setup.directory.join("copy.vmdk").to_string(), &probe.hypervisor.places.datacenter);
        let (from, to) = (path(made(&probe.disk)?), DiskFile { path: &copy, datacenter });
        probe.changes().copy_disk(DiskFile { path: from, datacenter }, to).await?;
        let has_own = probe.uuid_at(from).await? != probe.uuid_at(&copy).await?;
        probe.changes().delete_disk(to).await?;
        saw(has_own, format!("another UUID: {has_own}"))
    }
    "object-outlives" "A First Class Disk outlives a VM that is destroyed with it" |probe| {
        let (object, vm) = (made(&probe.object)?, probe.now(&probe.linked).await?.reference);
        // As vSphere Client does. The commands refuse to destroy a VM that holds such a disk.
        probe.changes().destroy(&vm).await?;
        probe.client.storage_object(&object.id, probe.datastore()).await?;
        saw(true, "it stays")
    }
}

impl Probe<'_> {
    /// Attaches a disk by its path to the last SCSI controller.
    async fn attach(&self, vm: &vsphere::Vm, path: &str) -> Result<()> {
        let scsi = vm.devices.controllers.iter().filter(|controller| controller.is_scsi());
        let controller = scsi.max_by_key(|controller| controller.bus);
        let controller = controller.ok_or_else(|| untried("the VM has no SCSI controller"))?;
        let disk = ExistingDisk { path, controller, mode: DiskMode::IndependentPersistent };
        self.reconfigure(vm, ConfigSpec::of(vm).attach(&disk)?).await
    }

    /// Whether the lock of the linked clone's settings is listed.
    async fn lists_lock(&self) -> Result<bool> {
        let settings = self.now(&self.linked).await?.vmx_path;
        let lock = format!("{settings}.lck").parse::<vsphere::DatastorePath>();
        let lock = lock.map_err(|_| untried("the VM shows no path of its settings"))?;
        let directory = lock.parent().ok_or_else(|| untried("the VM has no directory"))?;
        let files = self.client.files(self.datastore(), &directory, "*").await?;
        Ok(files.iter().any(|file| directory.join(&file.name) == lock))
    }

    pub(super) async fn uuid_at(&self, path: &str) -> Result<String> {
        Ok(self.client.disk_uuid(DiskFile { path, datacenter: &self.hypervisor.places.datacenter }).await?)
    }
}

fn data_disk(vm: &vsphere::Vm) -> Result<&Disk> {
    let disk = vm.devices.disks.iter().find(|disk| kind(vm, disk) == DiskKind::Data);
    disk.ok_or_else(|| untried("the VM has no data disk"))
}

fn at<'v>(vm: &'v vsphere::Vm, file: &str) -> Option<&'v Disk> {
    vm.devices.disks.iter().find(|disk| path(disk) == file)
}

fn path(disk: &Disk) -> &str {
    disk.path.as_deref().unwrap_or_default()
}
