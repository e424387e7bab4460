//! Creates VMs from templates.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::CLONE_VM;
use crate::reference::MoRef;
use crate::soap::Element;

use super::config_spec::ConfigSpec;
use super::device::Disk;

/// The treatment of the source VM's disks.
#[derive(Clone, Copy, Debug)]
pub enum CloneDisks<'a> {
    /// Each disk is copied. All its parents become one disk.
    Full,
    /// The clone's disks are differences to those of this snapshot. The source VM has to exist as long as the clone.
    LinkedTo(&'a MoRef),
}

/// The storage policy of a clone.
#[derive(Clone, Copy, Debug)]
pub struct ClonePolicy<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// The source VM's disks. The policy of the location is for the VM's other files only
    /// (`VirtualMachineRelocateSpec.profile`).
    pub disks: &'a [Disk],
    /// The datastore of the copies, which is required for each (`VirtualMachineRelocateSpecDiskLocator.datastore`).
    pub datastore: &'a MoRef,
}

/// The clone of a VM.
#[derive(Clone, Debug)]
pub struct CloneVm<'a> {
    /// Its name.
    pub name: &'a str,
    /// The clone's folder.
    pub folder: &'a MoRef,
    /// The resource pool. A template has none.
    pub pool: Option<&'a MoRef>,
    /// The datastore. `None` is that of the source VM.
    pub datastore: Option<&'a MoRef>,
    /// The host. `None` lets vCenter select one.
    pub host: Option<&'a MoRef>,
    /// The disks.
    pub disks: CloneDisks<'a>,
    /// The storage policy of its files and disks. `None` lets vCenter select one.
    pub policy: Option<ClonePolicy<'a>>,
    /// Settings that differ from those of the source VM. The clone is created with them.
    pub config: &'a ConfigSpec,
    /// Whether it becomes a template.
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
        // `VirtualMachineRelocateSpecDiskLocator`. A disk without `diskMoveType` is copied, whatever that of the
        // location is.
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
    /// Creates a VM from another one, powered off, and returns its reference. vCenter removes what a failure leaves
    /// behind. If the call is in doubt, the clone may exist, with these settings. `DuplicateName` if the name is in
    /// use.
    pub async fn clone_vm(&self, source: &MoRef, clone: &CloneVm<'_>) -> Result<MoRef> {
        let head = vec![Element::reference("folder", clone.folder), Element::text("name", clone.name), clone.spec()];
        let made = self.run(CLONE_VM, source, head).await?;
        let unnamed =
            || Error::in_doubt(format!("cloning {source} into {}", clone.name), "vCenter does not name the clone");
        made.and_then(|made| made.to_reference()).ok_or_else(unnamed)
    }
}
