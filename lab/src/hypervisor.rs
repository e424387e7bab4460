//! The lab as the hypervisor of an upgrade: one deployment's VMs, by stamp and BIOS UUID.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fleet::hypervisor::{
    Adapter, Disk, DiskKind, DiskRef, Error, Hypervisor, Kind, Permit, Placement, Replacement, Result, ShutDown,
    Staged, Stamp, Vm, VmRef,
};
use nix::unistd::geteuid;
use uuid::Uuid;

use super::records::VmRecord;
use super::{Lab, NewVm, Source, Unpacked, cache_directory};

/// The one adapter of a lab's VM.
const ADAPTER: &str = "nic0";

/// A lab, for callers that share it and must not block.
#[derive(Clone)]
pub struct LabHypervisor(Arc<Lab>);

impl LabHypervisor {
    /// The lab behind the contract.
    pub fn new(lab: Arc<Lab>) -> Self {
        Self(lab)
    }

    /// Does blocking work with the lab.
    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&Lab) -> Result<T> + Send + 'static) -> Result<T> {
        let lab = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || work(&lab)).await {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// The lab's lock, and the permission to change something that it was asked for.
    async fn locked(&self, permit: &dyn Permit) -> Result<File> {
        let lock = self.with(Lab::locked).await?;
        permit.still().await?;
        Ok(lock)
    }

    /// Changes a VM that is still as it was seen, with the lab locked. What fails half-way may have happened.
    async fn change(
        &self,
        vm: &Vm,
        permit: &dyn Permit,
        work: impl FnOnce(&Lab, &str) -> anyhow::Result<()> + Send + 'static,
    ) -> Result<()> {
        let (seen, lock) = (vm.clone(), self.locked(permit).await?);
        self.with(move |lab| {
            let _lock = lock;
            let record = lab.as_seen(&seen)?;
            work(lab, &record.name).map_err(|error| Error::new(Kind::InDoubt, error))
        })
        .await
    }
}

/// How long a change waits for the lab's lock.
const LOCKING: Duration = Duration::from_secs(5);

impl Lab {
    fn locked(&self) -> Result<File> {
        self.directory.lock_within(LOCKING).map_err(Error::transient)
    }

    /// Refuses every place but the one that a lab has.
    fn has_place(&self, placement: &Placement) -> Result<()> {
        if placement.is_default() {
            return Ok(());
        }
        Err(Error::refused(format!("the lab {} has one place for its VMs: it cannot put any {placement}", self.name)))
    }

    /// The record of a VM that has not changed since it was seen.
    fn unchanged(&self, seen: &Vm) -> Result<VmRecord> {
        let record = self.directory.recall_vm(&seen.reference.id).map_err(Error::transient)?;
        let record = record.filter(|record| record.uuid == seen.uuid());
        let record = record.ok_or_else(|| Error::not_found(format!("the lab {} has no VM {seen}", self.name)))?;
        if version(&record) != seen.version {
            return Err(Error::new(Kind::Changed, anyhow::anyhow!("the VM {seen} has changed since it was looked at")));
        }
        Ok(record)
    }

    /// The same of a VM of this deployment.
    fn as_seen(&self, seen: &Vm) -> Result<VmRecord> {
        let record = self.unchanged(seen)?;
        if record.stamp.as_ref().is_none_or(|stamp| stamp.deployment != self.deployment()) {
            return Err(Error::refused(format!("the VM {seen} is not stamped as this deployment's")));
        }
        Ok(record)
    }

    /// The VMs; one that a crash left without a record is none yet.
    fn vm_records(&self) -> Result<Vec<VmRecord>> {
        let names = self.directory.vms().map_err(Error::transient)?;
        let records = names.iter().map(|name| self.directory.recall_vm(name).map_err(Error::transient));
        Ok(records.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    fn seen(&self, record: VmRecord) -> Result<Vm> {
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
            version: version(&record),
            adapters: record.has_nic.then(adapter).into_iter().collect(),
            disks: record.disks.iter().map(disk).collect(),
            snapshots: Vec::new(),
            tasks: Vec::new(),
            reference: VmRef { uuid: record.uuid, id: record.name.clone() },
            stamp: record.stamp,
            name: record.name,
        })
    }

    fn disk_reference(&self, uuid: Uuid) -> DiskRef {
        DiskRef { uuid, path: self.directory.disk(uuid).display().to_string() }
    }

    /// Takes the OVA apart, or finds it so; it is the one of `digest`.
    fn unpacked(&self, ova: &Path, digest: &str) -> Result<Unpacked> {
        let cache = cache_directory().map_err(Error::transient)?;
        let unpacked =
            Unpacked::ensure(ova, &cache, &self.tools(), &|what| log::info!("{what}")).map_err(Error::transient)?;
        if unpacked.digest() != digest {
            return Err(Error::refused(format!("{} is not the OVA that was planned with", ova.display())));
        }
        Ok(unpacked)
    }

    /// What the new VM is to be.
    fn replacement(&self, wanted: &Wanted) -> Result<NewVm> {
        let Wanted { name, image, like, stamp } = wanted;
        let Some(node) = self.plan().nodes.iter().find(|planned| planned.name == stamp.node) else {
            return Err(Error::refused(format!("the lab {} was not made with a node {}", self.name, stamp.node)));
        };
        let Some(unpacked) = Unpacked::at(Path::new(&image.reference)) else {
            return Err(Error::not_found(format!("the image {} is not unpacked any more", image.reference)));
        };
        if unpacked.digest() != image.digest {
            return Err(Error::refused(format!("{} is not the image that was planned with", image.reference)));
        }
        let like = self.as_seen(like)?;
        if self.directory.recall_vm(name).map_err(Error::transient)?.is_some() {
            return Err(Error::refused(format!("the lab {} has a VM {name} already", self.name)));
        }
        Ok(NewVm {
            name: name.clone(),
            memory: like.memory,
            processors: like.processors,
            data_disk: None,
            network_interface: true,
            properties: node.properties.clone(),
            source: Some(Source::Ova { unpacked }),
            engine: self.replacements(),
            stamp: Some(stamp.clone()),
        })
    }

    /// Removes what a crash left without a record: it was never a VM.
    fn clear_place_of(&self, vm: &str) -> Result<()> {
        let left = self.directory.vm(vm);
        if left.exists() {
            fs::remove_dir_all(&left).map_err(Error::transient)?;
        }
        Ok(())
    }
}

/// A replacement that outlives the call which asked for it.
#[derive(Clone)]
struct Wanted {
    name: String,
    image: Staged,
    like: Vm,
    stamp: Stamp,
}

/// Changes with the VM's settings, not with its process.
fn version(record: &VmRecord) -> String {
    let settings = VmRecord { process: None, ..record.clone() };
    let text = serde_json::to_vec(&settings).unwrap_or_default();
    ova::Sha256::of(&text).to_string()
}

#[async_trait]
impl Hypervisor for LabHypervisor {
    fn deployment(&self) -> Uuid {
        self.0.deployment()
    }

    /// Network namespaces, loop devices and cgroups take root.
    async fn preflight(&self, placement: &Placement) -> Result<()> {
        if geteuid().is_root() {
            return self.0.has_place(placement);
        }
        Err(Error::new(
            Kind::Denied,
            anyhow::anyhow!("the lab's VMs are root's: give the command as root, or with sudo"),
        ))
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        self.with(|lab| {
            let deployment = lab.deployment();
            let ours = |record: &VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.deployment == deployment);
            lab.vm_records()?.into_iter().filter(ours).map(|record| lab.seen(record)).collect()
        })
        .await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        let wanted = vm.clone();
        self.with(move |lab| {
            let record = lab.directory.recall_vm(&wanted.id).map_err(Error::transient)?;
            let record = record.filter(|record| record.uuid == wanted.uuid);
            let missing = || Error::not_found(format!("the lab {} has no VM {}", lab.name, wanted.id));
            lab.seen(record.ok_or_else(missing)?)
        })
        .await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.with(move |lab| {
            let records = lab.vm_records()?.into_iter().filter(|record| record.uuid == uuid);
            records.map(|record| lab.seen(record)).collect()
        })
        .await
    }

    /// Each call has the lab's lock: whoever gets it next finds the one before ended. A VM that a command was powering on
    /// when it was killed is powered off.
    async fn settle(&self, permit: &dyn Permit) -> Result<()> {
        let (lock, half) = self
            .with(|lab| {
                let lock = lab.directory.lock().map_err(Error::transient)?;
                let (deployment, records) = (lab.deployment(), lab.vm_records()?.into_iter());
                let ours =
                    |record: &VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.deployment == deployment);
                let half: Vec<VmRecord> = records.filter(|r| ours(r) && lab.is_half_started(r)).collect();
                Ok((lock, half))
            })
            .await?;
        for record in half {
            permit.still().await?;
            let ended =
                self.with(move |lab| lab.end_half_start(&record).map_err(|error| Error::new(Kind::InDoubt, error)));
            ended.await?;
        }
        drop(lock);
        Ok(())
    }

    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Permit) -> Result<()> {
        let (seen, stamp, lock) = (vm.clone(), stamp.clone(), self.locked(permit).await?);
        self.with(move |lab| {
            let _lock = lock;
            let mut record = lab.unchanged(&seen)?;
            if let Some(stamp) = &record.stamp {
                let Stamp { deployment, node, .. } = stamp;
                return Err(Error::refused(format!("{seen} is stamped already, as {node} of {deployment}")));
            }
            record.stamp = Some(stamp);
            lab.directory.save_vm(&record).map_err(Error::transient)
        })
        .await
    }

    async fn staged(&self, digest: &str, _like: &Vm, placement: &Placement) -> Result<Option<Staged>> {
        self.0.has_place(placement)?;
        let digest = digest.to_owned();
        self.with(move |_| {
            let cache = cache_directory().map_err(Error::transient)?;
            let found = Unpacked::find(&cache, &digest).map_err(Error::transient)?;
            Ok(found.map(|unpacked| Staged { digest, reference: unpacked.directory().display().to_string() }))
        })
        .await
    }

    /// What is unpacked is whole or not there at all, and of use to every lab: one request.
    async fn stage(
        &self,
        ova: &Path,
        digest: &str,
        _like: &Vm,
        placement: &Placement,
        permit: &dyn Permit,
    ) -> Result<Staged> {
        self.0.has_place(placement)?;
        permit.still().await?;
        let (ova, digest) = (ova.to_owned(), digest.to_owned());
        self.with(move |lab| {
            let reference = lab.unpacked(&ova, &digest)?.directory().display().to_string();
            Ok(Staged { digest, reference })
        })
        .await
    }

    async fn import(&self, replacement: &Replacement<'_>, permit: &dyn Permit) -> Result<Uuid> {
        self.0.has_place(replacement.placement)?;
        let wanted = Wanted {
            name: replacement.name.to_owned(),
            image: replacement.image.clone(),
            like: replacement.like.clone(),
            stamp: replacement.stamp.clone(),
        };
        let lock = self.locked(permit).await?;
        let new = self
            .with(move |lab| {
                let new = lab.replacement(&wanted)?;
                lab.clear_place_of(&new.name)?;
                Ok(new)
            })
            .await?;
        permit.still().await?;
        let half = self.with(move |lab| lab.make_vm(&new).map_err(|error| Error::new(Kind::InDoubt, error))).await?;
        permit.still().await?;
        self.with(move |lab| {
            let _lock = lock;
            lab.finish_vm(half).map_err(|error| Error::new(Kind::InDoubt, error))
        })
        .await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Permit) -> Result<()> {
        self.change(vm, permit, |lab, name| lab.power_on_locked(name)).await
    }

    /// Two requests: the guest is asked; once nothing of it runs, what it had from the host is given back.
    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Permit) -> Result<ShutDown> {
        let (seen, lock) = (vm.clone(), self.locked(permit).await?);
        let asked = self
            .with(move |lab| {
                let _lock = lock;
                let record = lab.as_seen(&seen)?;
                lab.ask_to_shut_down(&record.name).map_err(|error| Error::new(Kind::InDoubt, error))
            })
            .await?;
        let Some(record) = asked else { return Ok(ShutDown::CannotBeAsked) };
        let waiting = record.clone();
        let off = self
            .with(move |lab| {
                let begun = Instant::now();
                match lab.is_shut_down(&waiting, limit) {
                    Ok(()) => Ok(true),
                    Err(_) if begun.elapsed() >= limit => Ok(false),
                    Err(error) => Err(Error::new(Kind::InDoubt, error)),
                }
            })
            .await?;
        if !off {
            return Ok(ShutDown::StillOn);
        }
        let lock = self.locked(permit).await?;
        self.with(move |lab| {
            let _lock = lock;
            lab.tidy_after(&record).map_err(|error| Error::new(Kind::InDoubt, error))
        })
        .await?;
        Ok(ShutDown::Off)
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Permit) -> Result<()> {
        self.change(vm, permit, |lab, name| lab.cut_power_locked(name)).await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Permit) -> Result<()> {
        if adapter != ADAPTER {
            return Err(Error::not_found(format!("{vm} has no network adapter {adapter}")));
        }
        self.change(vm, permit, move |lab, name| lab.connect_nic_locked(name, connected)).await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Permit) -> Result<()> {
        let disk = disk.uuid;
        self.change(vm, permit, move |lab, name| lab.detach_disk_locked(name, disk)).await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Permit) -> Result<()> {
        let disk = disk.clone();
        if self.0.disk_reference(disk.uuid) != disk {
            return Err(Error::not_found(format!("the disk {} is not at {}", disk.uuid, disk.path)));
        }
        self.change(vm, permit, move |lab, name| lab.attach_disk_locked(name, disk.uuid)).await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Permit) -> Result<()> {
        self.change(vm, permit, |lab, name| lab.destroy_locked(name)).await
    }
}

#[cfg(test)]
#[path = "hypervisor_tests.rs"]
mod tests;
