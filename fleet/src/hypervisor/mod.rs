//! The hypervisor contract: calls that vSphere and the lab both implement. VMs and disks are identified by UUID, never
//! by name or position. Only VMs with this deployment's stamp are ever changed. Each call that changes something takes
//! a [`Fence`]. Knows nothing of clusters or upgrades.

mod absence;
mod double;
mod error;
mod fence;
mod guest;
mod image;
mod networks;
mod placement;
mod size;
mod vm;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use contract::deployer::Fingerprints;
use contract::statement::Statement;
use uuid::Uuid;

pub use absence::{Absence, LastSeen, Place};
pub use double::doubles;
pub use error::{Error, ErrorKind, Result};
pub use fence::Fence;
pub use guest::{named_twice, uuids_of};
pub use image::ImageTemplate;
pub use networks::Networks;
pub use placement::Placement;
pub use size::{Size, VmSize};
pub use vm::{Adapter, Disk, DiskKind, DiskRef, Host, PowerState, Stamp, Vm, VmRef};

/// A VM to create from a template.
#[derive(Clone)]
pub struct CloneRequest<'a> {
    /// The VM's name in the inventory.
    pub name: &'a str,
    /// The BIOS UUID of the new VM. The caller has saved it before: an incomplete VM is recognized by it.
    pub uuid: Uuid,
    pub image: &'a ImageTemplate,
    pub settings: CloneSettings<'a>,
    /// The stamp, which the VM has from its creation.
    pub stamp: Stamp,
    pub placement: &'a Placement,
}

/// The settings of a new VM that its image does not have.
#[derive(Clone, Copy)]
pub enum CloneSettings<'a> {
    /// The networks and properties of the VM that the new one replaces. `size` is processors and memory; `None` copies
    /// those of that VM.
    Replaces { vm: &'a Vm, size: Option<VmSize> },
    /// The settings of a VM that replaces no other one. It may be the first VM of an empty place. Properties are OVF
    /// properties by key, and some may be secrets.
    Given { networks: Networks<'a>, size: &'a Size, properties: &'a BTreeMap<String, String> },
}

/// How long a guest may take to shut down before its power is cut. A worker's pods have 180 s to end, and systemd stops
/// the rest after that (`systemd/logind.conf.d`).
pub const SHUTTING_DOWN: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutDown {
    Off,
    /// The guest got the request, and is still on at the limit.
    StillOn,
    /// The guest has no receiver for such a request. On vSphere, VMware Tools are missing or do not run, perhaps not
    /// yet. Nothing was done.
    CannotBeAsked,
}

/// Runs the VMs of one deployment.
///
/// Every call that changes something takes the VM as it was read. It is refused if the VM has changed since
/// ([`ErrorKind::Changed`]) or does not carry the deployment's stamp ([`ErrorKind::Refused`]). The [`ErrorKind`] says
/// what an error leaves behind.
///
/// One call may consist of many requests, over minutes. Before each request that changes something, the implementation
/// asks the call's [`Fence`] and returns its error unchanged. Reading needs no fence.
///
/// Only changes of a VM's settings can be tied to the settings that were read: on vSphere by `changeVersion`.
/// [`Hypervisor::stamp`], [`Hypervisor::connect`], [`Hypervisor::detach`], [`Hypervisor::attach`] and
/// [`Hypervisor::disown`] send it with their request, so that check and change are atomic. [`Hypervisor::power_on`],
/// [`Hypervisor::shut_down`], [`Hypervisor::cut_power`], [`Hypervisor::destroy`] and [`Hypervisor::clone_vm`] can only
/// look first. They protect a changed VM by a refusal of the hypervisor, or by a setting that they change before.
#[async_trait]
pub trait Hypervisor: Send + Sync {
    /// The UUID of the deployment: the first half of every stamp.
    fn deployment(&self) -> Uuid;

    /// Checks the privileges to create VMs, and that the placement exists.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] with all missing privileges. [`ErrorKind::Refused`] if the place does not exist.
    async fn preflight(&self, placement: &Placement) -> Result<()>;

    /// Checks the privileges to dismantle the deployment's own VMs, where they and their data disks are.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] with all missing privileges.
    async fn may_change_own(&self) -> Result<()> {
        Ok(())
    }

    /// The VMs with the deployment's stamp, wherever an account that may change them can see them. If the hypervisor
    /// cannot search for stamps, only the folders count in which the deployment's VMs are created or were adopted. A VM
    /// that was moved out of these folders is left out and counts as gone. Templates are left out.
    ///
    /// # Errors
    /// The inventory, or a part of it that may contain such a VM, cannot be read. A VM whose settings cannot be read is
    /// left out, such as one that is being created or whose datastore is lost.
    async fn vms(&self) -> Result<Vec<Vm>>;

    /// The current state of a VM of any owner, wherever it was moved.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if no VM has this identifier and BIOS UUID.
    async fn vm(&self, vm: &VmRef) -> Result<Vm>;

    /// The host that a VM is on. Without another answer, all VMs are on this machine.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the VM does not exist, or the hypervisor cannot say.
    async fn host(&self, _vm: &VmRef) -> Result<Host> {
        Ok(Host { name: "this machine".to_owned(), responds: true })
    }

    /// All VMs with a BIOS UUID, of all owners. For reading only.
    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>>;

    /// Whether a VM that [`Hypervisor::vms`] does not show is gone. This is the only proof: replacing the VM or freeing
    /// its resources waits for it. `nodes` are the names of the nodes that the VM may have belonged to.
    async fn absence(&self, uuid: Uuid, _nodes: &[&str], _seen: LastSeen<'_>) -> Result<Absence> {
        let found = self.with_bios_uuid(uuid).await?;
        Ok(match found.iter().find(|vm| !vm.is_anothers(self.deployment())) {
            Some(vm) => Absence::Unknown(format!("there is {vm}, which is {}", vm.power)),
            None => Absence::Gone,
        })
    }

    /// Names a VM that may belong to one of these nodes and whose settings cannot be read. Neither [`Hypervisor::vms`]
    /// nor [`Hypervisor::with_bios_uuid`] shows it.
    async fn unread(&self, _nodes: &[&str]) -> Result<Option<String>> {
        Ok(None)
    }

    /// The fingerprints of the cluster that a VM's guest shows through the hypervisor, out of reach of the network. On
    /// vSphere it is the variable [`Fingerprints::GUESTINFO`] of its settings. `None` if the guest has shown none since
    /// its power-on, or if its image shows none. Programs inside the VM may have written it: compare the CA with the
    /// first one that was shown.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the VM does not exist, or the hypervisor cannot say.
    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>>;

    /// The statement of a VM's guest about itself through the hypervisor, out of reach of the network. On vSphere it is
    /// the variable [`Statement::GUESTINFO`] of its settings. `None` if the guest has made none since its power-on, if
    /// its image makes none, or if this hypervisor does not show it. Programs inside the VM may have written it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the VM does not exist, or the hypervisor cannot say.
    async fn statement(&self, _vm: &VmRef) -> Result<Option<Statement>> {
        Ok(None)
    }

    /// Waits until all earlier requests of all callers for this deployment have ended. It waits for requests that have
    /// arrived. The caller ensures that none is still in flight ([`Fence`]). It may end unfinished work of a killed
    /// command whose state is unknown, each change under the permit. Before the first permit it only reads, so that a
    /// caller that is asked to end can drop it.
    ///
    /// # Errors
    /// [`ErrorKind::Transient`] if something is still running after a while.
    async fn settle(&self, permit: &dyn Fence) -> Result<()>;

    /// Whether [`Hypervisor::vms`] finds a VM once it carries the deployment's stamp. It may already carry it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it would not be found, with its place and a remedy. Or the hypervisor cannot say.
    async fn may_be_stamped(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Whether the data disks of a VM could be attached to a VM that replaces it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if [`Hypervisor::attach`] would refuse the place of a disk: on vSphere, the directory of
    /// a VM that is not the deployment's. Or the hypervisor cannot say.
    async fn may_be_replaced(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Whether no other VM holds a data disk of this one, or a copy of it under the same UUID. Ask while the VM runs:
    /// after its power-off, any such holder would keep the node off.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] with the name of each holder. Or the hypervisor cannot say, on vSphere also if a VM that
    /// cannot be read may hold a disk.
    async fn is_sole_holder(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Stamps a VM that has no stamp.
    ///
    /// # Errors
    /// The VM has a stamp.
    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()>;

    /// The template with this digest that [`Hypervisor::import_template`] has imported, if it is complete and
    /// unchanged. If others can write to the place, as on vSphere, only the deployment's own imports count. Cloning
    /// from it needs no file.
    async fn find_template(
        &self,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>>;

    /// Imports an OVA where VMs are created, for example as a template. Does nothing if the template exists. If the
    /// placement is empty, the place is that of `like`, a VM that is replaced. Without `like` the hypervisor chooses.
    ///
    /// Deployments share a template only if no one else can change it. Two that import it at once do not disturb each
    /// other. It never appears among [`Hypervisor::vms`]. An incomplete template that an error leaves behind is
    /// unusable, and the next call creates it again. No call removes a template: the hypervisor's administrator does,
    /// when no upgrade needs it. A later upgrade imports it again. `digest` is SHA-256 over the digests of the OVA's
    /// manifest, in hexadecimal. The imported bytes are compared with it.
    ///
    /// # Errors
    /// The file is not the OVA of `digest` ([`ErrorKind::Refused`]), or there is no room ([`ErrorKind::Transient`]).
    async fn import_template(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate>;

    /// Creates a VM, powered off, and returns its BIOS UUID. The VM has the UUID and the stamp from its creation, so that
    /// an incomplete VM can be found and destroyed. A VM that replaces another one gets no data disk. Another one gets a
    /// new, blank disk if its size has one, and no second VM is created with its stamp.
    ///
    /// # Errors
    /// The name is taken, or the hypervisor refuses. The template is gone ([`ErrorKind::NotFound`]), has changed
    /// ([`ErrorKind::Changed`]) or is not the image of its digest ([`ErrorKind::Refused`]). [`ErrorKind::Refused`] also
    /// if a VM with this stamp exists, even an incomplete one. Or the image has no such property, or a network does not
    /// exist.
    async fn clone_vm(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid>;

    /// Sets the properties of a VM that is off. Its guest reads them at its next power-on, on vSphere from its vApp
    /// options. Some may be secrets.
    ///
    /// # Errors
    /// The VM is on, the image has no such property, or this hypervisor cannot ([`ErrorKind::Refused`]).
    async fn set_properties(&self, vm: &Vm, _properties: &BTreeMap<String, String>, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor does not change the properties of {vm}, which exists already")))
    }

    /// The value of a property that a VM was created with, such as its address. On vSphere it is one of its vApp
    /// options, which no guest can write. `None` if the VM does not have the property or no value was set.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the VM does not exist, or the hypervisor cannot say.
    async fn property(&self, vm: &VmRef, _key: &str) -> Result<Option<String>> {
        Err(Error::refused(format!("this hypervisor does not show what the VM {} was given", vm.id)))
    }

    /// Powers on a VM that is off.
    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Asks the guest to shut down and waits until the VM is off, at most `limit`.
    ///
    /// # Errors
    /// The hypervisor does not forward the request, or the VM cannot be watched.
    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown>;

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Connects or disconnects a network adapter, by its key, now and at later power-ons.
    ///
    /// # Errors
    /// The adapter does not exist, or it cannot be changed.
    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()>;

    /// Removes a data disk from a VM that is off. Its content stays where it is.
    ///
    /// # Errors
    /// The VM is on, does not hold the disk, or the disk is part of a snapshot.
    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()>;

    /// Attaches a data disk to a VM that is off. The call checks that no VM of the deployment holds the disk's file.
    /// For other VMs it knows only what the hypervisor reports: the disk's place, or a lock on the file of a running
    /// VM. Another file with the same UUID is a copy, and does not matter here ([`Hypervisor::is_sole_holder`]).
    ///
    /// # Errors
    /// The VM is on, or a VM is known to hold the disk. [`ErrorKind::Refused`] on vSphere also if the disk is in the
    /// directory of a VM that is not the deployment's.
    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()>;

    /// Whether a data disk is at its path, with or without a VM that holds it.
    ///
    /// # Errors
    /// The hypervisor cannot say, on vSphere also if the disk is locked. That does not mean that the disk is missing.
    async fn has_disk(&self, disk: &DiskRef) -> Result<bool>;

    /// The hypervisor's identifier of the place that stores a disk, which a rename does not change: a datastore. `None`
    /// if it has no such identifier.
    async fn disk_datastore(&self, _disk: &DiskRef) -> Result<Option<String>> {
        Ok(None)
    }

    /// The current path of a disk whose [`Hypervisor::disk_datastore`] may have been renamed. The path is unchanged if
    /// the name is, or if that datastore no longer exists.
    async fn present_place(&self, disk: &DiskRef, _datastore: &str) -> Result<DiskRef> {
        Ok(disk.clone())
    }

    /// The path of the copy of a data disk with this mark: next to the disk, unless the hypervisor names disks
    /// otherwise.
    fn copy_path(&self, disk: &DiskRef, mark: &str) -> String {
        disk.beside(mark)
    }

    /// Copies a data disk that no VM holds to [`Hypervisor::copy_path`], and returns the complete copy. The call checks
    /// that no VM holds the disk, as [`Hypervisor::attach`] does. A file at the path is an incomplete earlier copy, and
    /// is removed. `nodes` are the names of the node's VMs: the disk may be in the directory of a former VM. An error
    /// may leave an incomplete copy. The disk itself is only read. A copy may take hours.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if a VM is known to hold the disk or the copy, or this hypervisor cannot copy.
    /// [`ErrorKind::NotFound`] if the disk does not exist, [`ErrorKind::Transient`] if there is no room.
    async fn copy_disk(&self, disk: &DiskRef, _mark: &str, _nodes: &[&str], _permit: &dyn Fence) -> Result<DiskRef> {
        Err(Error::refused(format!("this hypervisor copies no disks: {} has no copy", disk.path)))
    }

    /// Whether a deletion of files or disks has arrived and still runs that may affect a disk of this deployment, by
    /// any account. It may still delete a disk that exists now. [`Hypervisor::settle`] does not wait for deletions of
    /// other accounts, because most of them are of other files.
    async fn has_pending_deletes(&self) -> Result<bool> {
        Ok(false)
    }

    /// Deletes a data disk that no VM holds, with its content, for good. The call checks that no VM holds it, as
    /// [`Hypervisor::attach`] does.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if a VM is known to hold it, or this hypervisor cannot delete disks.
    /// [`ErrorKind::NotFound`] if the disk does not exist.
    async fn delete_disk(&self, disk: &DiskRef, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor does not remove disks: {} stays", disk.path)))
    }

    /// Whether a data disk is in the directory of a VM of the deployment, or of a former VM of one of `nodes`. No other
    /// disk is removed without being shown first. A hypervisor with a separate place for disks has them nowhere else.
    async fn is_in_node_directory(&self, _disk: &DiskRef, _nodes: &[&str]) -> Result<bool> {
        Ok(true)
    }

    /// Removes the former directory of a deleted data disk if it is empty: the directory of a VM that was removed
    /// before its disk. Only a directory with the name of a VM of one of `nodes` counts. If the directory stays, that
    /// is logged and blocks nothing.
    ///
    /// # Errors
    /// The permit's own.
    async fn remove_empty_directory(&self, _disk: &DiskRef, _nodes: &[&str], _permit: &dyn Fence) -> Result<()> {
        Ok(())
    }

    /// Removes a VM that is off and holds no disk but its system disk.
    ///
    /// # Errors
    /// The VM is on, holds another disk, or has a snapshot that may refer to one. A data disk must never be deleted
    /// with its VM.
    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Gives up a VM that is off and has no adapter that is connected, now or at power-on. The VM keeps all that it
    /// holds. One change sets the name and a stamp without a deployment ([`Stamp::released`]). After that, no
    /// deployment counts or changes the VM.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if the VM is not off or an adapter is connected. [`ErrorKind::Refused`] if this
    /// hypervisor cannot.
    async fn disown(&self, vm: &Vm, _name: &str, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor gives up no VM: {vm} stays, or is destroyed")))
    }
}
