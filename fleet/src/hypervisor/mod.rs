//! What is asked of a hypervisor: calls that vSphere and the lab both keep. VMs and disks are named by UUID,
//! never by name or position, and only VMs that carry this deployment's stamp are ever changed. Whatever changes
//! something takes a [`Fence`]. Knows nothing of clusters or upgrades.

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
pub use vm::{Adapter, Disk, DiskKind, DiskRef, PowerState, Stamp, Vm, VmRef};

/// A VM that is to take another one's place.
#[derive(Clone, Debug)]
pub struct Replacement<'a> {
    /// Its name in the inventory.
    pub name: &'a str,
    /// BIOS UUID that it is given, which its maker has noted before: half of it is known by that.
    pub uuid: Uuid,
    pub image: &'a ImageTemplate,
    /// The VM whose place it takes: it gets the same networks and properties.
    pub like: &'a Vm,
    /// How large it is; as the VM whose place it takes if there is none.
    pub size: Option<VmSize>,
    /// What it is stamped with, from its first moment.
    pub stamp: Stamp,
    pub placement: &'a Placement,
}

/// A VM that takes no other one's place. It may be the first one of an empty place.
pub struct Addition<'a> {
    /// Its name in the inventory.
    pub name: &'a str,
    /// BIOS UUID that it is given, which its maker has noted before; one of the hypervisor's choice if there is none.
    pub uuid: Option<Uuid>,
    pub image: &'a ImageTemplate,
    pub networks: Networks<'a>,
    pub size: &'a Size,
    /// OVF properties by key. There may be secrets among them.
    pub properties: &'a BTreeMap<String, String>,
    /// What it is stamped with, from its first moment.
    pub stamp: Stamp,
    pub placement: &'a Placement,
}

/// How long a guest may take to shut down before its power is cut. A worker's pods have 180 s to end, and systemd stops the rest after
/// that (`systemd/logind.conf.d`).
pub const SHUTTING_DOWN: Duration = Duration::from_secs(240);

/// How a request to shut down ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutDown {
    Off,
    /// It was asked, and is still on at the limit.
    StillOn,
    /// Nothing in the guest takes such a request: on vSphere, VMware Tools are missing or do not run, perhaps not yet.
    /// Nothing was done.
    CannotBeAsked,
}

/// Runs the VMs of one deployment.
///
/// Every call that changes something takes the VM as it was seen and is refused when the VM has changed since
/// ([`ErrorKind::Changed`]) or does not carry the deployment's stamp ([`ErrorKind::Refused`]). What an error leaves behind is
/// in its [`ErrorKind`].
///
/// One call may be many requests, over minutes. Before each of them that changes something the implementation asks the
/// call's [`Fence`], and hands its error on as it is; what only looks needs none.
///
/// Only what changes a VM's settings can be tied to the settings that were seen: on vSphere `changeVersion`, which
/// [`Hypervisor::stamp`], [`Hypervisor::connect`], [`Hypervisor::detach`], [`Hypervisor::attach`] and [`Hypervisor::disown`]
/// give with their request, so that looking and changing are one. [`Hypervisor::power_on`], [`Hypervisor::shut_down`],
/// [`Hypervisor::cut_power`], [`Hypervisor::destroy`] and [`Hypervisor::clone_vm`] can only look first: what they must never
/// do to a changed VM they make sure of by what the hypervisor refuses itself, or by a setting that they change before.
#[async_trait]
pub trait Hypervisor: Send + Sync {
    /// The deployment: the first half of every stamp.
    fn deployment(&self) -> Uuid;

    /// Checks that all is permitted that making VMs needs, and that they can be put where they are to be.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] with all privileges that are missing; [`ErrorKind::Refused`] when there is no such place.
    async fn preflight(&self, placement: &Placement) -> Result<()>;

    /// Checks that what takes the deployment's own VMs apart is permitted where they and their data disks are.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] with all privileges that are missing.
    async fn may_change_own(&self) -> Result<()> {
        Ok(())
    }

    /// The VMs that carry the deployment's stamp, wherever an account that may change them can see them: by their stamps
    /// if the hypervisor can search for those, or else in the folders where the deployment's VMs are put or were adopted.
    /// A VM that somebody has moved out of those is not among them, and counts as gone. No templates.
    ///
    /// # Errors
    /// When the inventory cannot be read, or not all of it that may hold such a VM. A VM whose settings cannot be read is left out, such as one
    /// that is just being made or whose datastore is lost.
    async fn vms(&self) -> Result<Vec<Vm>>;

    /// A VM as it is now, whoever's it is and wherever it was moved to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is none any more with this identifier and BIOS UUID.
    async fn vm(&self, vm: &VmRef) -> Result<Vm>;

    /// All VMs with a BIOS UUID, whoever's they are; to be looked at only.
    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>>;

    /// Whether a VM is gone that [`Hypervisor::vms`] does not show. It is the one proof of it: whatever takes the VM's place, or frees what is
    /// its, waits for that. `nodes` are the names of the nodes that it may have been a VM of.
    async fn absence(&self, uuid: Uuid, _nodes: &[&str], _seen: LastSeen<'_>) -> Result<Absence> {
        let found = self.with_bios_uuid(uuid).await?;
        Ok(match found.iter().find(|vm| !vm.is_anothers(self.deployment())) {
            Some(vm) => Absence::Unknown(format!("there is {vm}, which is {}", vm.power)),
            None => Absence::Gone,
        })
    }

    /// Names a VM that may be one of these nodes' and whose settings cannot be read. Neither [`Hypervisor::vms`] nor
    /// [`Hypervisor::with_bios_uuid`] shows it. None where there is no such VM.
    async fn unread(&self, _nodes: &[&str]) -> Result<Option<String>> {
        Ok(None)
    }

    /// What a VM's guest shows of its cluster through the hypervisor, where nobody on the network can change it: on vSphere
    /// the variable [`Fingerprints::GUESTINFO`] of its settings. None while the guest has shown none since its power-on, or
    /// if it is of an image that shows none. Programs inside the VM may have written it: whoever keeps a cluster's
    /// authority holds it against the one that he was shown first.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such VM any more, or when the hypervisor cannot say.
    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>>;

    /// What a VM's guest says of itself through the hypervisor, where nobody on the network can change it: on vSphere the
    /// variable [`Statement::GUESTINFO`] of its settings. None while the guest has said nothing since its power-on, if it is
    /// of an image that says nothing, or if this hypervisor does not show it. Programs inside the VM may have written it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such VM any more, or when the hypervisor cannot say.
    async fn statement(&self, _vm: &VmRef) -> Result<Option<Statement>> {
        Ok(None)
    }

    /// Waits until nothing that was asked for this deployment before, by whomever, is still going on. What has arrived
    /// is waited for; that nothing is still on its way is the caller's part ([`Fence`]).
    /// What somebody who was killed has left half done, so that nobody can say what it is, may be ended here, each under
    /// the permit. Until it is asked for, this only looks: who is asked to end drops it then.
    ///
    /// # Errors
    /// [`ErrorKind::Transient`] when something still is after a while.
    async fn settle(&self, permit: &dyn Fence) -> Result<()>;

    /// Whether a VM is where [`Hypervisor::vms`] finds it once it carries the deployment's stamp, which it may already.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when it is not, with where it is and what can be done; or the hypervisor cannot say.
    async fn may_be_stamped(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Whether the data disks of a VM could be given to one that takes its place.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when [`Hypervisor::attach`] would refuse one for where it lies, on vSphere beside a VM that is not the deployment's;
    /// or the hypervisor cannot say.
    async fn may_be_replaced(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Whether no other VM holds a data disk of this one, or a copy of it under the same UUID. It is asked while the VM runs: once it is off,
    /// whatever is found here keeps its node off.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] where one does; or the hypervisor cannot say, on vSphere also where a VM that cannot be read may hold one. Each VM
    /// is named.
    async fn is_sole_holder(&self, _vm: &Vm) -> Result<()> {
        Ok(())
    }

    /// Stamps a VM that carries no stamp yet.
    ///
    /// # Errors
    /// When it carries one.
    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()>;

    /// The image of a digest that lies ready where [`Hypervisor::import_template`] would lay it, whole, and as it was laid there; none if
    /// there is none. Where others may write as well, as on vSphere, only what this deployment has laid there itself counts. An
    /// import from it needs no file.
    async fn find_template(
        &self,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>>;

    /// Lays an OVA ready where VMs are to be put, such as in a template; nothing happens when it is. Where the placement
    /// says nothing that is beside `like`, a VM whose place is taken, or in an empty place where the hypervisor puts what
    /// nothing is said of. Deployments may share what is laid there only where nobody else can change it; two that lay it at once
    /// do not disturb each other. It never appears
    /// among [`Hypervisor::vms`]. Half of it that an error leaves behind is of no use to anybody, and is made anew by the
    /// next call. Nothing here removes it: whoever runs the hypervisor does, once nobody upgrades to that image; who needs
    /// it then lays it anew. `digest` is what the OVA must be: SHA-256 over its manifest's digests, in hexadecimal. It is
    /// held against the bytes that are taken.
    ///
    /// # Errors
    /// When it is not the OVA of `digest` ([`ErrorKind::Refused`]), or there is no room ([`ErrorKind::Transient`]).
    async fn import_template(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate>;

    /// Makes a VM, powered off, without a data disk, and returns its BIOS UUID, which is the one that was asked for. Both that
    /// and its stamp are there from its first moment: half a VM that an error leaves behind can be found and destroyed.
    ///
    /// # Errors
    /// When the name is taken, the hypervisor refuses, or what was staged is gone ([`ErrorKind::NotFound`]), has been changed since
    /// ([`ErrorKind::Changed`]) or is not the image of its digest ([`ErrorKind::Refused`]).
    async fn clone_vm(&self, replacement: &Replacement<'_>, permit: &dyn Fence) -> Result<Uuid>;

    /// Makes a VM that takes no other one's place, powered off, and returns its BIOS UUID. With a data disk that is new
    /// and blank, if its size has one. Its stamp is there from its first moment: half a VM that an error leaves behind can
    /// be found and destroyed. A VM that carries the very same stamp is never made twice.
    ///
    /// # Errors
    /// As [`Hypervisor::clone_vm`]; or there is a VM with this stamp already, half a one too, the image has no such property,
    /// or there is no such network ([`ErrorKind::Refused`]).
    async fn add(&self, addition: &Addition<'_>, permit: &dyn Fence) -> Result<Uuid>;

    /// Fills in the form of a VM that is off anew: its guest finds these properties at its next power-on, on vSphere those of
    /// its vApp options. There may be secrets among them.
    ///
    /// # Errors
    /// When the VM is on, the image has no such property, or this hypervisor cannot ([`ErrorKind::Refused`]).
    async fn set_properties(&self, vm: &Vm, _properties: &BTreeMap<String, String>, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor does not change the properties of {vm}, which is there already")))
    }

    /// What a VM was given in its form under this key, such as its address: on vSphere among its vApp options, which no guest can write.
    /// None where its form does not have it, or nothing was given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such VM any more, or when the hypervisor cannot say.
    async fn property(&self, vm: &VmRef, _key: &str) -> Result<Option<String>> {
        Err(Error::refused(format!("this hypervisor does not show what the VM {} was given", vm.id)))
    }

    /// Powers a VM on that is off.
    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Asks the guest to shut down and waits until the VM is off, at most `limit`.
    ///
    /// # Errors
    /// When the hypervisor does not hand the request on, or the VM cannot be watched.
    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown>;

    /// Cuts the power.
    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Connects or disconnects a network adapter, named by its key, now and at later power-ons.
    ///
    /// # Errors
    /// When there is no such adapter, or it cannot be changed.
    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()>;

    /// Takes a data disk away from a VM that is off; its content stays where it is.
    ///
    /// # Errors
    /// When the VM is on, does not hold the disk, or the disk is part of a snapshot.
    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()>;

    /// Gives a data disk to a VM that is off. No VM of the deployment holds its file, which the call makes sure of; that no
    /// other VM does, it knows only as far as the hypervisor itself tells: by where the disk lies, or by a lock on the
    /// file of a VM that is on. Another file under the same UUID is a copy: it does not matter here ([`Hypervisor::is_sole_holder`]).
    ///
    /// # Errors
    /// When the VM is on, or a VM is known to hold the disk; on vSphere also where it lies beside a VM that is not the
    /// deployment's ([`ErrorKind::Refused`]).
    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()>;

    /// Whether a data disk lies where it is said to lie, whoever holds it.
    ///
    /// # Errors
    /// When the hypervisor cannot say, on vSphere also where somebody has locked it: that is no no.
    async fn has_disk(&self, disk: &DiskRef) -> Result<bool>;

    /// What the hypervisor calls the place that a disk lies on, however people name that: a datastore. None where it has no such.
    async fn disk_datastore(&self, _disk: &DiskRef) -> Result<Option<String>> {
        Ok(None)
    }

    /// The current path of a disk whose [`Hypervisor::disk_datastore`] may have been renamed. The path is unchanged if the name is, or if that
    /// datastore no longer exists.
    async fn present_place(&self, disk: &DiskRef, _datastore: &str) -> Result<DiskRef> {
        Ok(disk.clone())
    }

    /// Where the copy of a data disk lies that carries this mark: beside the disk, unless the hypervisor names disks otherwise.
    fn copy_path(&self, disk: &DiskRef, mark: &str) -> String {
        disk.beside(mark)
    }

    /// Copies a data disk that no VM holds to [`Hypervisor::copy_path`], and returns what names the copy, which is
    /// whole then. That no VM holds it the call makes sure of, as [`Hypervisor::attach`] does. What lies there before is half of an
    /// earlier copy, and is removed. `nodes` are the names of its node's VMs: where one of them was the disk may lie. An error may leave half
    /// of a copy: the disk itself only is read. It may last for hours.
    ///
    /// # Errors
    /// When a VM is known to hold either ([`ErrorKind::Refused`]), there is no such disk ([`ErrorKind::NotFound`]), there is no room
    /// ([`ErrorKind::Transient`]), or this hypervisor cannot ([`ErrorKind::Refused`]).
    async fn copy_disk(&self, disk: &DiskRef, _mark: &str, _nodes: &[&str], _permit: &dyn Fence) -> Result<DiskRef> {
        Err(Error::refused(format!("this hypervisor copies no disks: {} has no copy", disk.path)))
    }

    /// Whether anybody's removal of files or disks has arrived and goes on, where that may be of a disk of this deployment: one that is there
    /// now may go by it yet. [`Hypervisor::settle`] waits for none of another account's, for most are of something else.
    async fn has_pending_deletes(&self) -> Result<bool> {
        Ok(false)
    }

    /// Removes a data disk that no VM holds, with its content, for good. That no VM holds it the call makes sure of, as
    /// [`Hypervisor::attach`] does.
    ///
    /// # Errors
    /// When a VM is known to hold it ([`ErrorKind::Refused`]), there is no such disk any more ([`ErrorKind::NotFound`]), or this
    /// hypervisor cannot ([`ErrorKind::Refused`]).
    async fn delete_disk(&self, disk: &DiskRef, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor does not remove disks: {} stays", disk.path)))
    }

    /// Whether a data disk lies beside a VM of the deployment, or where a VM of one of `nodes` was: nothing else is removed that nobody was
    /// shown. A hypervisor that has a place of its own for disks has them nowhere else.
    async fn is_in_node_directory(&self, _disk: &DiskRef, _nodes: &[&str]) -> Result<bool> {
        Ok(true)
    }

    /// Removes the directory that a data disk lay in which was removed, where nothing is in it: that of a VM which went before its disk.
    /// Only one that is called as a VM of one of `nodes` is taken for a VM's. That it stays stops nothing, and is told.
    ///
    /// # Errors
    /// The permit's own.
    async fn remove_empty_directory(&self, _disk: &DiskRef, _nodes: &[&str], _permit: &dyn Fence) -> Result<()> {
        Ok(())
    }

    /// Removes a VM that is off and holds no disk but its system disk.
    ///
    /// # Errors
    /// When it is on, holds another disk, or has a snapshot that may name one: a data disk must never go with its VM.
    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()>;

    /// Gives up a VM that is off and that no network adapter connects, now or at power-on. All that it holds stays on it; it has this name from
    /// then on, and is stamped as nobody's ([`Stamp::released`]), all in one: no deployment counts or changes it any more.
    ///
    /// # Errors
    /// When it is not off or an adapter connects it ([`ErrorKind::Changed`]), or this hypervisor cannot ([`ErrorKind::Refused`]).
    async fn disown(&self, vm: &Vm, _name: &str, _permit: &dyn Fence) -> Result<()> {
        Err(Error::refused(format!("this hypervisor gives up no VM: {vm} stays, or is destroyed")))
    }
}
