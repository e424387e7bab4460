//! A lab's VMs as the inventory shows them, and checks that one has not changed since.

use fleet::hypervisor::{Adapter, Disk, DiskKind, DiskRef, Error, ErrorKind, Result, Vm, VmRef, VmSize};
use uuid::Uuid;

use crate::Lab;
use crate::records::VmRecord;

/// Key of the only adapter of a lab's VM.
pub(super) const ADAPTER: &str = "nic0";

impl Lab {
    /// The record of a VM that has not changed since `seen` was read.
    pub(super) fn unchanged(&self, seen: &Vm) -> Result<VmRecord> {
        let record = self.directory.recall_vm(&seen.reference.id).map_err(Error::transient)?;
        let record = record.filter(|record| record.uuid == seen.uuid());
        let record = record.ok_or_else(|| Error::not_found(format!("the lab {} has no VM {seen}", self.name)))?;
        if version(&record) != seen.version {
            return Err(Error::new(
                ErrorKind::Changed,
                anyhow::anyhow!("the VM {seen} has changed since it was looked at"),
            ));
        }
        Ok(record)
    }

    /// As [`Lab::unchanged`], for a VM of a deployment.
    pub(super) fn as_seen(&self, seen: &Vm, deployment: Uuid) -> Result<VmRecord> {
        let record = self.unchanged(seen)?;
        if record.stamp.as_ref().is_none_or(|stamp| stamp.deployment != deployment) {
            return Err(Error::refused(format!("the VM {seen} is not stamped as this deployment's")));
        }
        Ok(record)
    }

    /// The record of a VM. Changes of its settings do not matter.
    pub(super) fn named(&self, vm: &VmRef) -> Result<VmRecord> {
        let record = self.directory.recall_vm(&vm.id).map_err(Error::transient)?;
        let record = record.filter(|record| record.uuid == vm.uuid);
        record.ok_or_else(|| Error::not_found(format!("the lab {} has no VM {}", self.name, vm.id)))
    }

    /// Records of the VMs. A directory without a record, which a crash left, is no VM.
    pub(super) fn vm_records(&self) -> Result<Vec<VmRecord>> {
        let names = self.directory.vms().map_err(Error::transient)?;
        let records = names.iter().map(|name| self.directory.recall_vm(name).map_err(Error::transient));
        Ok(records.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    pub(super) fn seen(&self, record: VmRecord) -> Result<Vm> {
        let adapter = || Adapter {
            key: ADAPTER.to_owned(),
            network: self.name.clone(),
            mac: record.mac.clone(),
            connected: record.nic_connected,
        };
        let disk = |uuid: &Uuid| Disk {
            reference: self.disk_reference(*uuid),
            kind: DiskKind::Data,
            parent: None,
            controller: "data".to_owned(),
        };
        Ok(Vm {
            power: Lab::power_state(self, &record.name).map_err(Error::transient)?,
            size: Some(VmSize { processors: record.processors, memory: record.memory.into() }),
            version: version(&record),
            adapters: record.has_nic.then(adapter).into_iter().collect(),
            disks: record.disks.iter().map(disk).collect(),
            snapshots: Vec::new(),
            tasks: Vec::new(),
            settings: None,
            reference: VmRef { uuid: record.uuid, id: record.name.clone() },
            stamp: record.stamp,
            name: record.name,
        })
    }

    pub(super) fn disk_reference(&self, uuid: Uuid) -> DiskRef {
        DiskRef { uuid, path: self.directory.disk(uuid).display().to_string() }
    }

    /// Reference of the disk's copy with this mark. A lab's disks are named by their UUIDs.
    pub(super) fn copy_of(&self, disk: &DiskRef, mark: &str) -> DiskRef {
        self.disk_reference(Uuid::new_v5(&disk.uuid, mark.as_bytes()))
    }

    /// Whether a disk's file exists, at the path of the reference.
    pub(super) fn disk_exists(&self, disk: &DiskRef) -> std::io::Result<bool> {
        Ok(self.disk_reference(disk.uuid) == *disk && self.disk_file(disk.uuid).try_exists()?)
    }
}

/// Changes with the VM's settings, but not with its process.
fn version(record: &VmRecord) -> String {
    let settings = VmRecord { process: None, ..record.clone() };
    let text = serde_json::to_vec(&settings).unwrap_or_default();
    ova::Sha256::of(&text).to_string()
}
