//! VMs from templates.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::CLONE_VM;
use crate::reference::MoRef;
use crate::soap::Element;

use super::config_spec::ConfigSpec;
use super::device::Disk;

/// What becomes of the disks of the VM that is cloned.
#[derive(Clone, Copy, Debug)]
pub enum CloneDisks<'a> {
    /// Each is copied, all its parents into one.
    Full,
    /// The clone's are differences to those of this snapshot: its VM has to stay for as long as the clone does.
    LinkedTo(&'a MoRef),
}

/// The storage policy of a clone.
#[derive(Clone, Copy, Debug)]
pub struct ClonePolicy<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// The disks of the VM that is cloned: that of the location is for the VM's own files alone (`VirtualMachineRelocateSpec.profile`).
    pub disks: &'a [Disk],
    /// The datastore that their copies are to be on, which has to be named for each (`VirtualMachineRelocateSpecDiskLocator.datastore`).
    pub datastore: &'a MoRef,
}

/// A VM that is to be made from another one.
#[derive(Clone, Debug)]
pub struct CloneVm<'a> {
    /// Its name.
    pub name: &'a str,
    /// The folder that it is to be in.
    pub folder: &'a MoRef,
    /// The resource pool; a template has none.
    pub pool: Option<&'a MoRef>,
    /// The datastore; where the VM that is cloned is, if nothing is said.
    pub datastore: Option<&'a MoRef>,
    /// The host; vCenter chooses if nothing is said.
    pub host: Option<&'a MoRef>,
    /// The disks.
    pub disks: CloneDisks<'a>,
    /// The storage policy of its own files and of its disks; vCenter's choice if nothing is said.
    pub policy: Option<ClonePolicy<'a>>,
    /// What differs from the settings of the VM that is cloned: the clone has it from its first moment.
    pub config: &'a ConfigSpec,
    /// Whether it is to be a template.
    pub is_template: bool,
}

impl CloneVm<'_> {
    /// `VirtualMachineCloneSpec`, in the order of its schema.
    fn spec(&self) -> Element {
        let profile = |id: &str| {
            let id = Element::text("profileId", id);
            Element::new("profile").of("VirtualMachineDefinedProfileSpec").with([id])
        };
        let (moved, snapshot) = match self.disks {
            CloneDisks::Full => ("moveAllDiskBackingsAndDisallowSharing", None),
            CloneDisks::LinkedTo(snapshot) => ("createNewChildDiskBacking", Some(snapshot)),
        };
        // `VirtualMachineRelocateSpecDiskLocator`. Without a manner of its own a disk is copied, whatever is said of the whole.
        let disk = |policy: ClonePolicy<'_>, disk: &Disk| {
            Element::new("disk").with([
                Element::text("diskId", disk.key),
                Element::reference("datastore", policy.datastore),
                Element::text("diskMoveType", moved),
                profile(policy.id),
            ])
        };
        let disks = self.policy.iter().flat_map(|policy| policy.disks.iter().map(move |one| disk(*policy, one)));
        let location = Element::new("location")
            .with(self.datastore.map(|datastore| Element::reference("datastore", datastore)))
            .with([Element::text("diskMoveType", moved)])
            .with(self.pool.map(|pool| Element::reference("pool", pool)))
            .with(self.host.map(|host| Element::reference("host", host)))
            .with(disks)
            .with(self.policy.map(|policy| profile(policy.id)));
        Element::new("spec")
            .with([location, Element::text("template", self.is_template), self.config.element("config")])
            .with([Element::text("powerOn", false)])
            .with(snapshot.map(|snapshot| Element::reference("snapshot", snapshot)))
    }
}

impl Changes<'_> {
    /// Makes a VM from another one, powered off, and returns what names it. What a failure leaves behind vCenter removes; of
    /// one that is in doubt the clone may be there, with the settings that it was to have.
    ///
    /// # Errors
    /// `DuplicateName` when the name is taken.
    pub async fn clone_vm(&self, source: &MoRef, clone: &CloneVm<'_>) -> Result<MoRef> {
        let head = vec![Element::reference("folder", clone.folder), Element::text("name", clone.name), clone.spec()];
        let made = self.run(CLONE_VM, source, head).await?;
        let unnamed =
            || Error::in_doubt(format!("cloning {source} into {}", clone.name), "vCenter does not name the clone");
        made.and_then(|made| made.to_reference()).ok_or_else(unnamed)
    }
}
