//! Devices of a lab's VMs: data disks, a CD-ROM, a network interface.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use uuid::Uuid;

use super::records::VmRecord;
use super::{Lab, cdrom, disk, environment};

impl Lab {
    /// Disks that no VM holds, with their paths. The disks of removed workers are kept.
    ///
    /// # Errors
    /// When the lab's directory cannot be read.
    pub fn kept_disks(&self) -> anyhow::Result<Vec<(Uuid, PathBuf)>> {
        let disks = self.directory.unattached_disks()?.into_iter();
        Ok(disks.map(|disk| (disk, self.disk_file(disk))).collect())
    }

    /// Connects or fences a VM's network interface, now and at later power-ons.
    ///
    /// # Errors
    /// When the network cannot be changed.
    pub fn connect_nic(&self, vm: &str, connected: bool) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.connect_nic_locked(vm, connected)
    }

    /// As [`Lab::connect_nic`]. The caller holds the lab's lock.
    pub(crate) fn connect_nic_locked(&self, vm: &str, connected: bool) -> anyhow::Result<()> {
        let mut record = self.directory.load_vm(vm)?;
        record.nic_connected = connected;
        self.directory.save_vm(&record)?;
        self.network.connect(&record.port, connected)
    }

    /// Cuts a VM off from the lab's network, or reconnects it. Its carrier stays up, but packets are dropped both
    /// ways. The VM's next power-on reconnects it.
    ///
    /// # Errors
    /// When the VM is off, or the network cannot be changed.
    pub fn partition(&self, vm: &str, cut_off: bool) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.network.partition(&self.directory.load_vm(vm)?.port, cut_off)
    }

    /// Creates a blank disk of `capacity` bytes that no VM holds.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create_disk(&self, capacity: u64) -> anyhow::Result<Uuid> {
        let disk = Uuid::new_v4();
        disk::create(&self.directory.disk(disk), capacity)?;
        Ok(disk)
    }

    /// Removes a disk that no VM holds. The caller holds the lab's lock.
    pub(crate) fn delete_disk_locked(&self, disk: Uuid) -> anyhow::Result<()> {
        let path = self.directory.disk(disk);
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// Copies a disk that no VM holds, and replaces an earlier copy. The caller holds the lab's lock.
    pub(crate) fn copy_disk_locked(&self, disk: Uuid, copy: Uuid) -> anyhow::Result<()> {
        let [from, to] = [disk, copy].map(|disk| self.directory.disk(disk));
        disk::copy(&from, &to)
    }

    /// The raw file of a disk. Tests write to it while its VM is off.
    pub fn disk_file(&self, disk: Uuid) -> PathBuf {
        self.directory.disk(disk)
    }

    /// The data disks of a VM, in the order in which they were attached.
    ///
    /// # Errors
    /// When the VM is unknown.
    pub fn disks(&self, vm: &str) -> anyhow::Result<Vec<Uuid>> {
        Ok(self.directory.load_vm(vm)?.disks)
    }

    /// Enlarges a VM's data disk to `capacity` bytes, as an administrator does in vSphere Client. The VM may be on.
    ///
    /// # Errors
    /// When no VM holds the disk, it is not smaller, or the running VM does not see the new size.
    pub fn enlarge_disk(&self, disk: Uuid, capacity: u64) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        let holder = self.directory.holder(disk)?.with_context(|| format!("no VM holds the disk {disk}"))?;
        let vm = self.directory.load_vm(&holder)?;
        let number = vm.disks.iter().position(|held| *held == disk).context("the VM has let go of it")?;
        disk::enlarge(&self.directory.disk(disk), capacity)?;
        let engine = self.engines.of(&vm);
        if engine.is_on(&vm) { engine.enlarge_disk(&vm, number) } else { Ok(()) }
    }

    /// Detaches a data disk from a VM that is off. Its content stays.
    ///
    /// # Errors
    /// When the VM is on or does not hold the disk.
    pub fn detach_disk(&self, vm: &str, disk: Uuid) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.detach_disk_locked(vm, disk)
    }

    /// As [`Lab::detach_disk`]. The caller holds the lab's lock.
    pub(crate) fn detach_disk_locked(&self, vm: &str, disk: Uuid) -> anyhow::Result<()> {
        let mut record = self.off(vm, "detaching a disk")?;
        let Some(place) = record.disks.iter().position(|held| *held == disk) else {
            bail!("{vm} does not hold the disk {disk}");
        };
        record.disks.remove(place);
        self.directory.save_vm(&record)
    }

    /// Attaches a data disk to a VM that is off.
    ///
    /// # Errors
    /// When the VM is on, the disk does not exist, or a VM holds it.
    pub fn attach_disk(&self, vm: &str, disk: Uuid) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.attach_disk_locked(vm, disk)
    }

    /// As [`Lab::attach_disk`]. The caller holds the lab's lock.
    pub(crate) fn attach_disk_locked(&self, vm: &str, disk: Uuid) -> anyhow::Result<()> {
        let mut record = self.off(vm, "attaching a disk")?;
        if let Some(holder) = self.directory.holder(disk)? {
            bail!("{holder} holds the disk {disk}; detach it there first");
        }
        if !self.directory.disk(disk).exists() {
            bail!("the lab {} has no disk {disk}", self.name);
        }
        record.disks.push(disk);
        self.directory.save_vm(&record)
    }

    /// Ejects the CD-ROM with the OVF environment, now and at later power-ons.
    ///
    /// # Errors
    /// When the VM is unknown or does not release the CD-ROM.
    pub fn eject_cdrom(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        let mut record = self.directory.load_vm(vm)?;
        record.cdrom_inserted = false;
        self.directory.save_vm(&record)?;
        if self.engines.of(&record).is_on(&record) { self.engines.of(&record).eject_cdrom(&record) } else { Ok(()) }
    }

    /// Presses keys of a virtual machine that is on, all at once, as on its keyboard. The names are QEMU's
    /// (`QKeyCode` of its `qapi/ui.json`).
    ///
    /// # Errors
    /// When the VM is unknown or off, has no keyboard, or no such key.
    pub fn press(&self, vm: &str, keys: &[&str]) -> anyhow::Result<()> {
        let record = self.directory.load_vm(vm)?;
        self.engines.of(&record).press(&record, keys)
    }

    /// The OVF environment of a VM's import.
    ///
    /// # Errors
    /// When the VM is unknown.
    pub fn environment(&self, vm: &str) -> anyhow::Result<String> {
        let path = self.directory.environment(vm);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Writes the CD-ROM with a VM's OVF environment.
    pub(crate) fn lay_form(&self, vm: &str, document: &str) -> anyhow::Result<()> {
        fs::write(self.directory.environment(vm), document)?;
        cdrom::burn(&self.tools(), document.as_bytes(), &self.directory.cdrom(vm))
    }

    /// Checks that a VM can get these properties: it is off, and its image exists and has them.
    ///
    /// # Errors
    /// The reason why not. A retry fails too.
    pub(crate) fn check_properties(
        &self,
        record: &VmRecord,
        properties: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        self.off(&record.name, "filling in its form again")?;
        form_of(record, properties).map(drop)
    }

    /// Fills in the form of a VM that is off again. Its guest reads it at its next power-on. The caller holds the
    /// lab's lock.
    pub(crate) fn set_properties_locked(&self, vm: &str, properties: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let mut record = self.off(vm, "filling in its form again")?;
        let form = form_of(&record, properties)?;
        self.lay_form(vm, &form.document)?;
        (record.unconfigured, record.cdrom_inserted) = (form.unconfigured, true);
        self.directory.save_vm(&record)
    }

    /// Inserts a CD-ROM with another OVF environment into the drive of a VM, on or off. The environment is not
    /// checked, so it may have content that vCenter's form refuses.
    ///
    /// # Errors
    /// When the VM is unknown or does not accept the CD-ROM.
    pub fn insert_environment(&self, vm: &str, environment: &[u8]) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        let mut record = self.directory.load_vm(vm)?;
        let engine = self.engines.of(&record);
        let on = engine.is_on(&record);
        if on {
            // Its image is rewritten below.
            engine.eject_cdrom(&record)?;
        }
        cdrom::burn(&self.tools(), environment, &self.directory.cdrom(vm))?;
        record.cdrom_inserted = true;
        self.directory.save_vm(&record)?;
        if on { engine.insert_cdrom(&record) } else { Ok(()) }
    }
}

/// The form of a VM's image, filled in with these properties.
fn form_of(
    record: &VmRecord,
    properties: &BTreeMap<String, String>,
) -> anyhow::Result<environment::ImportedProperties> {
    environment::import(&record.source, properties, &record.mac)
        .with_context(|| format!("filling in the form of {}", record.name))
}
