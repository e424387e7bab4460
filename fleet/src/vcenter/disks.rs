//! The kinds of disks, and data disks that move between VMs. A file is named by its path, and proved by its UUID.

use vsphere::{ConfigSpec, Controller, DatastorePath, DiskFile, DiskMode, ExistingDisk, MoRef, Power};

use super::VcenterHypervisor;
use super::datastore_directory::find_datastore;
use super::holders::Search;
use super::stamp::GOING;
use super::trouble::{LastLook, Looked, changed, not_now};
use crate::hypervisor::{DiskKind, DiskRef, Error, ErrorKind, Fence, Result, Vm};
use crate::upgrade::base_of;

/// The mode of disks that are outside snapshots.
const INDEPENDENT: &str = "independent_persistent";
/// The volume directories of vCenter's storage drivers for Kubernetes: that of First Class Disks, and that of the
/// driver within Kubernetes ("vSphere Storage for Kubernetes").
const VOLUMES: [&str; 2] = ["fcd", "kubevols"];

/// Whether a file is among a storage driver's volumes, in each notation of its path.
pub(super) fn is_volume(path: &DatastorePath) -> bool {
    let (directories, _) = path.path.rsplit_once('/').unwrap_or_default();
    let first = directories.split('/').find(|name| !matches!(*name, "" | "."));
    first.is_some_and(|first| VOLUMES.contains(&first))
}

/// The kind of a disk. The appliance's system disk is the first one on the first SCSI controller, and part of
/// snapshots. A disk that a storage driver has attached is foreign. All others are data disks. An ambiguous VM gets too
/// many data disks or too few.
pub(super) fn kind(vm: &vsphere::Vm, disk: &vsphere::Disk) -> DiskKind {
    let on_first = first_controller(vm).is_some_and(|first| first.key == disk.controller);
    let path = disk.path.as_deref().and_then(|path| path.parse::<DatastorePath>().ok());
    if disk.first_class.is_some() || path.is_some_and(|path| is_volume(&path)) {
        DiskKind::Foreign
    } else if on_first && disk.unit == 0 && disk.mode != INDEPENDENT {
        DiskKind::System
    } else {
        DiskKind::Data
    }
}

/// The controller of the appliance's disks.
pub(super) fn first_controller(vm: &vsphere::Vm) -> Option<&Controller> {
    vm.devices.controllers.iter().find(|controller| controller.is_scsi() && controller.bus == 0)
}

impl VcenterHypervisor {
    pub(super) async fn detach_disk(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        is_off(vm, &now)?;
        let held = now.devices.disk(&disk.uuid.to_string());
        let held = held.filter(|held| held.path.as_deref() == Some(&disk.path));
        let missing = || Error::not_found(format!("{vm} holds no disk {} at {}", disk.uuid, disk.path));
        let held = held.ok_or_else(missing)?;
        if kind(&now, held) == DiskKind::System {
            return Err(Error::refused(format!("{} is the system disk of {vm}", disk.path)));
        }
        if let Some(parent) = held.parents.first() {
            return Err(not_now(format!(
                "the disk {} of {vm} is a difference to {parent}, made by a snapshot: it cannot be detached",
                disk.path
            )));
        }
        let spec = ConfigSpec::of(&now).detach(held);
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    /// The journal that names a disk is a file on a datastore. A user who may write that file must not make this
    /// program attach a disk of another owner.
    pub(super) async fn attach_disk(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        is_off(vm, &now)?;
        self.may_move(disk).await?;
        self.lies_beside_no_others(disk, &[base_of(&now.name)]).await?;
        let controller = first_controller(&now);
        let controller = controller.ok_or_else(|| Error::refused(format!("{vm} has no SCSI controller")))?;
        let existing = ExistingDisk { path: &disk.path, controller, mode: DiskMode::IndependentPersistent };
        let spec = ConfigSpec::of(&now).attach(&existing)?;
        Ok(self.client.changes(&permit).reconfigure(&now.reference, &spec).await?)
    }

    /// Refuses a VM with a data disk whose place does not allow another VM of the node to get it.
    pub(super) async fn disks_may_move(&self, vm: &Vm) -> Result<()> {
        for disk in vm.data_disks() {
            self.lies_beside_no_others(&disk.reference, &[base_of(&vm.name)]).await?;
        }
        Ok(())
    }

    /// Checks first, to report problems at once. Right before the request it checks again what others may have changed
    /// meanwhile. The datastore's directory is not checked again: that may take as long as a task, and the request
    /// already occupies its slot.
    pub(super) async fn remove_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        self.is_free_and_there(disk).await?;
        self.is_in_no_others_directory(disk).await?;
        let look = || -> Looked<'_> { Box::pin(self.is_free_and_there(disk)) };
        let file = DiskFile { path: &disk.path, datacenter: &self.places.datacenter };
        Ok(self.client.changes(&LastLook { permit, look: &look }).delete_disk(file).await?)
    }

    pub(super) async fn is_free_and_there(&self, disk: &DiskRef) -> Result<()> {
        self.has_no_holder(disk, Search::Remove).await?;
        self.is_there(disk).await
    }

    /// Refuses a disk whose file a VM holds, or that does not exist.
    pub(super) async fn may_move(&self, disk: &DiskRef) -> Result<()> {
        self.has_no_holder(disk, Search::Move).await?;
        self.is_there(disk).await
    }

    pub(super) async fn lies_there(&self, disk: &DiskRef) -> Result<bool> {
        match self.is_there(disk).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes two requests. The first changes a setting of the VM, so it is refused if a user has attached a disk since
    /// the look. Between them, the VM is removed from the rule that separates the deployment's VMs. Right before the
    /// second request the VM and its stamp are checked again: a user who removes the stamp keeps the VM.
    pub(super) async fn destroy_vm(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let now = self.as_seen(vm).await?;
        may_go(vm, &now)?;
        let going = ConfigSpec::of(&now).extra(GOING, "yes");
        self.client.changes(&permit).reconfigure(&now.reference, &going).await?;
        self.let_go(&now, permit).await?;
        let look = || -> Looked<'_> {
            Box::pin(async move {
                let now = self.named(&vm.reference).await?;
                self.is_own(vm, &now)?;
                may_go(vm, &now)
            })
        };
        Ok(self.client.changes(&LastLook { permit, look: &look }).destroy(&now.reference).await?)
    }

    /// Proves that the file at a disk's path is that disk.
    async fn is_there(&self, disk: &DiskRef) -> Result<()> {
        let file = DiskFile { path: &disk.path, datacenter: &self.places.datacenter };
        let found = match self.client.disk_uuid(file).await {
            Err(error) if error.outcome() == vsphere::Outcome::NotFound => {
                self.reaches_datastore_of(disk).await?;
                return Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path)));
            }
            // vCenter also sends `InvalidDatastore` for a datastore that exists. Other refusals mean that the request cannot succeed.
            Err(error) if error.outcome() == vsphere::Outcome::Refused || error.is_fault("InvalidDatastore") => {
                return Err(match self.lacks_datastore_of(disk).await {
                    true => Error::not_found(format!(
                        "there is no datastore by the name in {}, or the account cannot see it: the disk {} is elsewhere, or gone",
                        disk.path, disk.uuid
                    )),
                    false => error.into(),
                });
            }
            found => found?,
        };
        if found == disk.uuid.to_string() {
            return Ok(());
        }
        Err(Error::not_found(format!("at {} is the disk {found}, and not {}", disk.path, disk.uuid)))
    }

    /// The identifier of a disk's datastore, which a rename does not change.
    pub(super) async fn reference_of_datastore(&self, disk: &DiskRef) -> Result<Option<String>> {
        let Ok(path) = disk.path.parse::<DatastorePath>() else { return Ok(None) };
        let found = find_datastore(&self.client, &self.places.datacenter_path, &path.datastore).await?;
        Ok(found.map(|datastore| datastore.id))
    }

    /// A disk's path with the current name of its datastore. The UUID is checked where the disk is used.
    pub(super) async fn by_present_name(&self, disk: &DiskRef, datastore: &str) -> Result<DiskRef> {
        let Ok(path) = disk.path.parse::<DatastorePath>() else { return Ok(disk.clone()) };
        match self.client.datastore(&MoRef::new("Datastore", datastore)).await {
            Ok(now) => Ok(DiskRef { path: DatastorePath::new(&now.name, path.path).to_string(), ..disk.clone() }),
            Err(error) if error.outcome() == vsphere::Outcome::NotFound => Ok(disk.clone()),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if no host reaches the datastore of a disk: then a missing file proves nothing.
    async fn reaches_datastore_of(&self, disk: &DiskRef) -> Result<()> {
        let Some(datastore) = self.reference_of_datastore(disk).await? else { return Ok(()) };
        let seen = self.client.datastore(&MoRef::new("Datastore", datastore)).await?;
        if seen.accessible {
            return Ok(());
        }
        Err(not_now(format!(
            "no host reaches the datastore {}, where the disk {} is: connect one",
            seen.name, disk.uuid
        )))
    }

    /// Whether the data center has no datastore with the name in a disk's path: it was renamed or removed. False if
    /// that is unknown.
    async fn lacks_datastore_of(&self, disk: &DiskRef) -> bool {
        let Ok(path) = disk.path.parse::<DatastorePath>() else { return false };
        matches!(find_datastore(&self.client, &self.places.datacenter_path, &path.datastore).await, Ok(None))
    }
}

/// Refuses a VM that is not off.
pub(super) fn is_off(seen: &Vm, now: &vsphere::Vm) -> Result<()> {
    if now.power == Power::Off { Ok(()) } else { Err(changed(format!("the VM {seen} is {}", now.power))) }
}

/// Refuses a VM that has snapshots. `which` says what they would do.
pub(super) fn has_no_snapshot(seen: &Vm, now: &vsphere::Vm, which: &str) -> Result<()> {
    if now.snapshots.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = now.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    Err(not_now(format!("the VM {seen} has snapshots ({}), which {which}: remove them first", names.join(", "))))
}

/// Refuses a VM that holds more than its system disk, that has snapshots, or that is not off. A snapshot contains the
/// VM's former settings: it may refer to a data disk that was attached then. The disks of a snapshot are deleted with
/// the VM.
fn may_go(seen: &Vm, now: &vsphere::Vm) -> Result<()> {
    is_off(seen, now)?;
    has_no_snapshot(seen, now, "may name disks that would go with it")?;
    let others = now.devices.disks.iter().filter(|disk| kind(now, disk) != DiskKind::System);
    let others: Vec<&str> = others.map(|disk| disk.path.as_deref().unwrap_or(&disk.label)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let words = format!("the VM {seen} holds {}: those would go with it", others.join(", "));
    Err(Error::new(ErrorKind::Changed, anyhow::anyhow!(words)))
}
