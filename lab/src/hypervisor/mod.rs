//! The lab as a hypervisor for `fleet`: the VMs of one deployment, by stamp and BIOS UUID.

mod image;
mod look;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use contract::deployer::Fingerprints;
use contract::statement::Statement;
use fleet::hypervisor::{
    CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, Fence, Hypervisor, ImageTemplate, Networks, Placement,
    Result, ShutDown, Stamp, Vm, VmRef,
};
use nix::unistd::geteuid;
use uuid::Uuid;

use self::look::ADAPTER;
use super::records::VmRecord;
use super::{Lab, NewVm};

/// A lab, shared by asynchronous callers, and the deployment whose VMs they may change.
#[derive(Clone)]
pub struct LabHypervisor(Arc<Lab>, Uuid);

impl LabHypervisor {
    /// The control-plane nodes of the lab's cluster.
    pub fn new(lab: Arc<Lab>) -> Self {
        let deployment = lab.deployment();
        Self(lab, deployment)
    }

    /// The workers of a pool of the lab's cluster.
    pub fn of_workers(lab: Arc<Lab>, pool: &str) -> Self {
        let deployment = fleet::workers::deployment(lab.deployment(), pool);
        Self(lab, deployment)
    }

    /// Runs blocking work with the lab.
    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&Lab) -> Result<T> + Send + 'static) -> Result<T> {
        let lab = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || work(&lab)).await {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Locks the lab, then confirms the fence.
    async fn locked(&self, permit: &dyn Fence) -> Result<File> {
        let lock = self.with(Lab::locked).await?;
        permit.still().await?;
        Ok(lock)
    }

    /// Changes a VM that is as `seen`, with the lab locked. A failed change may have happened.
    async fn change(
        &self,
        vm: &Vm,
        permit: &dyn Fence,
        work: impl FnOnce(&Lab, &str) -> anyhow::Result<()> + Send + 'static,
    ) -> Result<()> {
        self.change_if(vm, permit, |_, _| Ok(()), work).await
    }

    /// As [`LabHypervisor::change`], after a check that vCenter would make too. If it refuses, nothing has changed.
    async fn change_if(
        &self,
        vm: &Vm,
        permit: &dyn Fence,
        takes: impl FnOnce(&Lab, &VmRecord) -> anyhow::Result<()> + Send + 'static,
        work: impl FnOnce(&Lab, &str) -> anyhow::Result<()> + Send + 'static,
    ) -> Result<()> {
        let (seen, lock, deployment) = (vm.clone(), self.locked(permit).await?, self.1);
        self.with(move |lab| {
            let _lock = lock;
            let record = lab.as_seen(&seen, deployment)?;
            takes(lab, &record).map_err(|error| Error::refused(format!("{error:#}")))?;
            work(lab, &record.name).map_err(|error| Error::new(ErrorKind::InDoubt, error))
        })
        .await
    }
}

impl LabHypervisor {
    /// Creates a VM: first its record with the stamp, then the rest. The caller holds the lab's lock.
    async fn make(&self, new: NewVm, uuid: Uuid, lock: File, permit: &dyn Fence) -> Result<Uuid> {
        permit.still().await?;
        let half = self
            .with(move |lab| lab.make_vm_of(&new, uuid).map_err(|error| Error::new(ErrorKind::InDoubt, error)))
            .await?;
        permit.still().await?;
        self.with(move |lab| {
            let _lock = lock;
            lab.finish_vm(half).map_err(|error| Error::new(ErrorKind::InDoubt, error))
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

    /// Refuses every placement except the default.
    fn has_place(&self, placement: &Placement) -> Result<()> {
        if placement.is_default() {
            return Ok(());
        }
        Err(Error::refused(format!("the lab {} has one place for its VMs: it cannot put any {placement}", self.name)))
    }

    /// Refuses every network except the lab's, which has the lab's name.
    fn has_networks(&self, networks: &[String]) -> Result<()> {
        if *networks == [self.name.as_str()] {
            return Ok(());
        }
        let asked = if networks.is_empty() { "none".to_owned() } else { networks.join(", ") };
        Err(Error::refused(format!(
            "the lab {0} has one network for its VMs, {0}: it cannot put any on {asked}",
            self.name
        )))
    }
}

#[async_trait]
impl Hypervisor for LabHypervisor {
    fn deployment(&self) -> Uuid {
        self.1
    }

    /// Network namespaces, loop devices and cgroups need root.
    async fn preflight(&self, placement: &Placement) -> Result<()> {
        if geteuid().is_root() {
            return self.0.has_place(placement);
        }
        Err(Error::new(
            ErrorKind::Denied,
            anyhow::anyhow!("the lab's VMs are root's: give the command as root, or with sudo"),
        ))
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        let deployment = self.1;
        self.with(move |lab| {
            let ours = |record: &VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.deployment == deployment);
            lab.vm_records()?.into_iter().filter(ours).map(|record| lab.seen(record)).collect()
        })
        .await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        let wanted = vm.clone();
        self.with(move |lab| lab.seen(lab.named(&wanted)?)).await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.with(move |lab| {
            let records = lab.vm_records()?.into_iter().filter(|record| record.uuid == uuid);
            records.map(|record| lab.seen(record)).collect()
        })
        .await
    }

    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>> {
        let wanted = vm.clone();
        self.with(move |lab| lab.shown_fingerprints(&lab.named(&wanted)?).map_err(Error::transient)).await
    }

    async fn statement(&self, vm: &VmRef) -> Result<Option<Statement>> {
        let wanted = vm.clone();
        self.with(move |lab| lab.said(&lab.named(&wanted)?).map_err(Error::transient)).await
    }

    /// Each call holds the lab's lock, so the next holder finds earlier calls finished. Powers off a VM whose
    /// power-on was interrupted.
    async fn settle(&self, permit: &dyn Fence) -> Result<()> {
        let deployment = self.1;
        let (lock, half) = self
            .with(move |lab| {
                let lock = lab.directory.lock().map_err(Error::transient)?;
                let records = lab.vm_records()?.into_iter();
                let ours =
                    |record: &VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.deployment == deployment);
                let half: Vec<VmRecord> = records.filter(|r| ours(r) && lab.is_half_started(r)).collect();
                Ok((lock, half))
            })
            .await?;
        for record in half {
            permit.still().await?;
            let ended = self
                .with(move |lab| lab.end_half_start(&record).map_err(|error| Error::new(ErrorKind::InDoubt, error)));
            ended.await?;
        }
        drop(lock);
        Ok(())
    }

    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()> {
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

    async fn find_template(
        &self,
        digest: &str,
        _like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>> {
        self.0.has_place(placement)?;
        let digest = digest.to_owned();
        self.with(move |lab| lab.find_unpacked(digest)).await
    }

    /// One request: unpacking is atomic, and all labs share the result.
    async fn import_template(
        &self,
        ova: &Path,
        digest: &str,
        _like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        self.0.has_place(placement)?;
        permit.still().await?;
        let (ova, digest) = (ova.to_owned(), digest.to_owned());
        self.with(move |lab| lab.unpack_template(&ova, digest)).await
    }

    /// The lab's own engine runs the first VMs. Later ones run in the engine for replacements or for workers.
    async fn clone_vm(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        self.0.has_place(request.placement)?;
        let (name, image, stamp) = (request.name.to_owned(), request.image.clone(), request.stamp.clone());
        let (new, lock) = match request.settings {
            CloneSettings::Replaces { vm, size } => {
                let (like, lock) = (vm.clone(), self.locked(permit).await?);
                (self.with(move |lab| lab.replacement(name, &image, &like, size, stamp)).await?, lock)
            }
            CloneSettings::Given { networks, size, properties } => {
                let engine = match networks {
                    Networks::Named(networks) => {
                        self.0.has_networks(networks)?;
                        self.0.engine()
                    }
                    Networks::Of(_) if self.1 == self.0.deployment() => self.0.replacements(),
                    Networks::Of(_) => self.0.worker_engine(),
                };
                let vm = NewVm {
                    name,
                    memory: size.memory,
                    processors: size.processors,
                    data_disk: size.data_disk,
                    network_interface: true,
                    properties: properties.clone(),
                    source: None,
                    engine,
                    stamp: Some(stamp),
                    in_order_uuid: false,
                };
                let lock = self.locked(permit).await?;
                (self.with(move |lab| lab.addition(vm, &image)).await?, lock)
            }
        };
        self.make(new, request.uuid, lock, permit).await
    }

    async fn set_properties(&self, vm: &Vm, properties: &BTreeMap<String, String>, permit: &dyn Fence) -> Result<()> {
        let (properties, asked) = (properties.clone(), properties.clone());
        let takes = move |lab: &Lab, record: &VmRecord| lab.check_properties(record, &asked);
        self.change_if(vm, permit, takes, move |lab, name| lab.set_properties_locked(name, &properties)).await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let takes = |_: &Lab, record: &VmRecord| record.is_configured();
        self.change_if(vm, permit, takes, |lab, name| lab.power_on_locked(name)).await
    }

    /// Two requests: ask the guest, and after the VM has ended, release what it used on the host.
    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let (seen, lock, deployment) = (vm.clone(), self.locked(permit).await?, self.1);
        let asked = self
            .with(move |lab| {
                let _lock = lock;
                let record = lab.as_seen(&seen, deployment)?;
                lab.ask_to_shut_down(&record.name).map_err(|error| Error::new(ErrorKind::InDoubt, error))
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
                    Err(error) => Err(Error::new(ErrorKind::InDoubt, error)),
                }
            })
            .await?;
        if !off {
            return Ok(ShutDown::StillOn);
        }
        let lock = self.locked(permit).await?;
        self.with(move |lab| {
            let _lock = lock;
            lab.tidy_after(&record).map_err(|error| Error::new(ErrorKind::InDoubt, error))
        })
        .await?;
        Ok(ShutDown::Off)
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.change(vm, permit, |lab, name| lab.cut_power_locked(name)).await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        if adapter != ADAPTER {
            return Err(Error::not_found(format!("{vm} has no network adapter {adapter}")));
        }
        self.change(vm, permit, move |lab, name| lab.connect_nic_locked(name, connected)).await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let disk = disk.uuid;
        self.change(vm, permit, move |lab, name| lab.detach_disk_locked(name, disk)).await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let disk = disk.clone();
        if self.0.disk_reference(disk.uuid) != disk {
            return Err(Error::not_found(format!("the disk {} is not at {}", disk.uuid, disk.path)));
        }
        self.change(vm, permit, move |lab, name| lab.attach_disk_locked(name, disk.uuid)).await
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        let disk = disk.clone();
        self.with(move |lab| lab.disk_exists(&disk).map_err(Error::transient)).await
    }

    fn copy_path(&self, disk: &DiskRef, mark: &str) -> String {
        self.0.copy_of(disk, mark).path
    }

    async fn copy_disk(&self, disk: &DiskRef, mark: &str, _: &[&str], permit: &dyn Fence) -> Result<DiskRef> {
        let (copy, disk) = (self.0.copy_of(disk, mark), disk.clone());
        let lock = self.locked(permit).await?;
        self.with(move |lab| {
            let _lock = lock;
            if !lab.disk_exists(&disk).map_err(Error::transient)? {
                return Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path)));
            }
            for held in [disk.uuid, copy.uuid] {
                if let Some(holder) = lab.directory.holder(held).map_err(Error::transient)? {
                    return Err(Error::refused(format!("{holder} holds the disk {held}: detach it there first")));
                }
            }
            lab.copy_disk_locked(disk.uuid, copy.uuid).map_err(|error| Error::new(ErrorKind::InDoubt, error))?;
            Ok(copy)
        })
        .await
    }

    async fn delete_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let disk = disk.clone();
        let lock = self.locked(permit).await?;
        self.with(move |lab| {
            let _lock = lock;
            if !lab.disk_exists(&disk).map_err(Error::transient)? {
                return Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path)));
            }
            if let Some(holder) = lab.directory.holder(disk.uuid).map_err(Error::transient)? {
                return Err(Error::refused(format!("{holder} holds the disk {}: detach it there first", disk.uuid)));
            }
            lab.delete_disk_locked(disk.uuid).map_err(|error| Error::new(ErrorKind::InDoubt, error))
        })
        .await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.change(vm, permit, |lab, name| lab.destroy_locked(name)).await
    }
}
