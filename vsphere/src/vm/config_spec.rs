//! Changes of a VM's settings, or additions to those of a new VM.

use crate::error::{Error, Result};
use crate::soap::Element;

use super::device::{Adapter, Controller, Disk};
use super::power::Power;
use super::property::Property;
use super::seen::{ManagedBy, Vm};

/// The order of the settings (`VirtualMachineConfigSpec`, vSphere Web Services API 7.0). Settings out of order are
/// ignored or rejected. The settings of an import have more parts, which keep their places between these.
#[rustfmt::skip]
const ORDER: &[&str] = &[
    "changeVersion", "name", "version", "createDate", "uuid", "instanceUuid", "npivNodeWorldWideName",
    "npivPortWorldWideName", "npivWorldWideNameType", "npivDesiredNodeWwns", "npivDesiredPortWwns",
    "npivTemporaryDisabled", "npivOnNonRdmDisks", "npivWorldWideNameOp", "locationId", "guestId", "alternateGuestName",
    "annotation", "files", "tools", "flags", "consolePreferences", "powerOpInfo", "rebootPowerOff", "numCPUs", "vcpuConfig",
    "numCoresPerSocket", "memoryMB", "memoryHotAddEnabled", "cpuHotAddEnabled", "cpuHotRemoveEnabled",
    "virtualICH7MPresent", "virtualSMCPresent", "deviceChange", "cpuAllocation", "memoryAllocation",
    "latencySensitivity", "cpuAffinity", "memoryAffinity", "networkShaper", "cpuFeatureMask", "extraConfig",
    "swapPlacement", "bootOptions", "vAppConfig", "ftInfo", "repConfig", "vAppConfigRemoved", "vAssertsEnabled",
    "changeTrackingEnabled", "firmware", "maxMksConnections", "guestAutoLockEnabled", "managedBy",
    "memoryReservationLockedToMax", "nestedHVEnabled", "vPMCEnabled", "scheduledHardwareUpgradeInfo", "vmProfile",
];

/// The mode of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskMode {
    /// Snapshots include it.
    Persistent,
    /// Snapshots leave it out: writes are always kept, and never reverted.
    IndependentPersistent,
}

impl DiskMode {
    fn said(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::IndependentPersistent => "independent_persistent",
        }
    }
}

/// A disk with an existing file.
#[derive(Clone, Debug)]
pub struct ExistingDisk<'a> {
    /// Its file, such as `[datastore] vm/disk.vmdk`.
    pub path: &'a str,
    /// The disk's controller.
    pub controller: &'a Controller,
    /// The disk's mode.
    pub mode: DiskMode,
}

/// A disk to create, blank and thin.
#[derive(Clone, Debug)]
pub struct NewDisk<'a> {
    /// Its size in bytes, a multiple of 1 KiB.
    pub capacity: u64,
    /// The disk's controller.
    pub controller: &'a Controller,
    /// The disk's mode.
    pub mode: DiskMode,
    /// The name of the disk's datastore. `None` is the VM's directory.
    pub datastore: Option<&'a str>,
    /// The identifier of the disk's storage policy.
    pub policy: Option<&'a str>,
}

/// Changes of a VM's settings (`VirtualMachineConfigSpec`).
#[derive(Clone, Debug, Default)]
pub struct ConfigSpec {
    parts: Vec<Element>,
    new_devices: i32,
}

impl ConfigSpec {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes of a VM that was read. vCenter rejects them ([`crate::Outcome::Changed`]) if the settings have changed
    /// since.
    pub fn of(vm: &Vm) -> Self {
        Self::new().with(Element::text("changeVersion", &vm.change_version))
    }

    /// Sets its name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with(Element::text("name", name))
    }

    /// Sets its BIOS UUID. Without it, vCenter selects the one of a new VM.
    #[must_use]
    pub fn bios_uuid(self, uuid: &str) -> Self {
        self.with(Element::text("uuid", uuid))
    }

    /// Sets its notes.
    #[must_use]
    pub fn annotation(self, text: &str) -> Self {
        self.with(Element::text("annotation", text))
    }

    /// Sets its number of virtual processors.
    #[must_use]
    pub fn processors(self, number: u32) -> Self {
        self.with(Element::text("numCPUs", number))
    }

    /// Sets its memory, in MiB.
    #[must_use]
    pub fn memory(self, mib: u64) -> Self {
        self.with(Element::text("memoryMB", mib))
    }

    /// Sets an entry of `extraConfig`, such as `guestinfo.x`. An empty value removes the entry.
    #[must_use]
    pub fn extra(self, key: &str, value: &str) -> Self {
        let value = Element::text("value", value).xsd("string");
        self.with(Element::new("extraConfig").of("OptionValue").with([Element::text("key", key), value]))
    }

    /// Sets the extension that manages the VM.
    #[must_use]
    pub fn managed_by(self, by: &ManagedBy) -> Self {
        let parts = [Element::text("extensionKey", &by.extension), Element::text("type", &by.kind)];
        self.with(Element::new("managedBy").with(parts))
    }

    /// Sets that no extension manages the VM (`ManagedByInfo` with an empty `extensionKey`).
    #[must_use]
    pub fn managed_by_nobody(self) -> Self {
        self.with(Element::new("managedBy").with([Element::text("extensionKey", ""), Element::text("type", "")]))
    }

    /// Sets the storage policy of the VM's files except disks, by its identifier. Each disk has a separate policy.
    #[must_use]
    pub fn policy(self, id: &str) -> Self {
        self.with(profile("vmProfile", id))
    }

    /// Sets OVF properties of a VM by their names in the guest. Fails if the VM's form does not have one.
    pub fn properties<'a>(
        mut self,
        form: &[Property],
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let mut infos = Vec::new();
        for (name, value) in values {
            let unknown = || Error::refused("filling in the OVF properties", format!("the VM has no property {name}"));
            let property = form.iter().find(|property| property.name() == name).ok_or_else(unknown)?;
            infos.push(property.with_value(value));
        }
        if !infos.is_empty() {
            self.parts.push(edited(infos));
        }
        Ok(self)
    }

    /// Sets an OVF property with only its key and its value.
    #[must_use]
    pub fn value_alone(self, property: &Property, value: &str) -> Self {
        let info = Element::new("info").with([Element::text("key", property.key), Element::text("value", value)]);
        let change = Element::new("property").with([Element::text("operation", "edit"), info]);
        self.with(Element::new("vAppConfig").of("VmConfigSpec").with([change]))
    }

    /// Adds a paravirtual SCSI controller with this number among the VM's SCSI controllers.
    #[must_use]
    pub fn scsi_controller(mut self, bus: i32) -> Self {
        self.new_devices += 1;
        let device = Element::new("device").of("ParaVirtualSCSIController").with([
            Element::text("key", -100 - self.new_devices),
            Element::text("busNumber", bus),
            Element::text("sharedBus", "noSharing"),
        ]);
        self.change("add", device)
    }

    /// Attaches a disk with an existing file. Fails if the controller is full.
    pub fn attach(self, disk: &ExistingDisk<'_>) -> Result<Self> {
        let backing = backing(disk.path, disk.mode);
        let place = self.place(disk.controller)?;
        // vCenter reads the capacity from the file.
        let device = place.with([Element::text("capacityInKB", 0)]);
        Ok(self.change_of_new("add", None, device, backing, None))
    }

    /// Creates a blank disk and attaches it. Fails if the controller is full.
    pub fn new_disk(self, disk: &NewDisk<'_>) -> Result<Self> {
        // vCenter selects the name of the file: in the VM's directory, or on the given datastore.
        let file = disk.datastore.map(|name| format!("[{name}]")).unwrap_or_default();
        let mut backing = backing(&file, disk.mode);
        backing.push(Element::text("thinProvisioned", true));
        let place = self.place(disk.controller)?;
        let device = place.with([Element::text("capacityInKB", disk.capacity / 1024)]);
        Ok(self.change_of_new("add", Some("create"), device, backing, disk.policy))
    }

    /// Detaches a disk. Its file stays.
    #[must_use]
    pub fn detach(self, disk: &Disk) -> Self {
        self.change("remove", disk.element.clone())
    }

    /// Connects or disconnects an adapter at the next power-on and, if the VM is on, now.
    #[must_use]
    pub fn connect(self, adapter: &Adapter, connected: bool, power: Power) -> Self {
        let mut device = adapter.element.clone();
        if let Some(connectable) = device.child_mut("connectable") {
            connectable.put(Element::text("startConnected", connected));
            connectable.put(Element::text("connected", connected && power != Power::Off));
        }
        self.change("edit", device)
    }

    /// Moves an adapter to a network, with the backing from [`crate::Client::network_backing`]. The VM is off, or is a
    /// clone. `connected` applies at the next power-on.
    #[must_use]
    pub fn network(self, adapter: &Adapter, backing: &Element, connected: bool) -> Self {
        let mut device = adapter.element.clone();
        // A clone has another address than its source, and an edit without the address keeps it.
        device.retain(|part| part.name() != "macAddress");
        device.put(backing.clone().named("backing"));
        if let Some(connectable) = device.child_mut("connectable") {
            connectable.put(Element::text("startConnected", connected));
        }
        self.change("edit", device)
    }

    /// The element in a request.
    pub(crate) fn element(&self, name: &str) -> Element {
        let mut spec = Element::new(name);
        self.add_to(&mut spec);
        spec
    }

    /// Adds the changes to settings of another origin. They override entries of `extraConfig`.
    pub(crate) fn add_to(&self, spec: &mut Element) {
        let key = |part: &Element| part.text_of("key").map(str::to_owned);
        for part in &self.parts {
            match part.name() {
                "extraConfig" => spec.retain(|present| present.name() != "extraConfig" || key(present) != key(part)),
                "deviceChange" | "vmProfile" => {}
                single => spec.retain(|present| present.name() != single),
            }
            spec.push(part.clone());
        }
        spec.sort_by_schema(ORDER);
    }

    /// The parts of the request.
    pub(super) fn parts(&self) -> &[Element] {
        &self.parts
    }

    pub(super) fn push(&mut self, part: Element) {
        self.parts.push(part);
    }

    fn with(mut self, part: Element) -> Self {
        self.parts.push(part);
        self
    }

    fn change(self, operation: &str, device: Element) -> Self {
        let parts = [Element::text("operation", operation), device.named("device")];
        self.with(Element::new("deviceChange").of("VirtualDeviceConfigSpec").with(parts))
    }

    fn change_of_new(
        mut self,
        operation: &str,
        file: Option<&str>,
        place: Element,
        backing: Element,
        policy: Option<&str>,
    ) -> Self {
        self.new_devices += 1;
        // Keys of new devices are negative. vCenter replaces them (`VirtualDevice.key`).
        let head = [Element::text("key", -100 - self.new_devices), backing];
        let device = Element::new("device").of("VirtualDisk").with(head).with(place.children().iter().cloned());
        let file = file.map(|file| Element::text("fileOperation", file));
        let change =
            Element::new("deviceChange").of("VirtualDeviceConfigSpec").with([Element::text("operation", operation)]);
        let policy = policy.map(|id| profile("profile", id));
        self.with(change.with(file).with([device]).with(policy))
    }

    /// A unit of a controller that is free in the VM and in these changes.
    fn place(&self, controller: &Controller) -> Result<Element> {
        let mut controller = controller.clone();
        for device in self.parts.iter().filter_map(|part| part.child("device")) {
            if device.parsed("controllerKey") == Some(controller.key) {
                controller.take(device.parsed("unitNumber"));
            }
        }
        let full = || {
            Error::refused(
                "attaching a disk",
                format!("the controller {} {} has no free unit", controller.kind, controller.key),
            )
        };
        let unit = controller.free_unit().ok_or_else(full)?;
        Ok(Element::new("place")
            .with([Element::text("controllerKey", controller.key), Element::text("unitNumber", unit)]))
    }
}

/// Edits of OVF properties (`VmConfigSpec`).
pub(super) fn edited(infos: Vec<Element>) -> Element {
    let edit = |info: Element| Element::new("property").with([Element::text("operation", "edit"), info]);
    Element::new("vAppConfig").of("VmConfigSpec").with(infos.into_iter().map(edit))
}

fn backing(path: &str, mode: DiskMode) -> Element {
    let parts = [Element::text("fileName", path), Element::text("diskMode", mode.said())];
    Element::new("backing").of("VirtualDiskFlatVer2BackingInfo").with(parts)
}

fn profile(name: &str, id: &str) -> Element {
    Element::new(name).of("VirtualMachineDefinedProfileSpec").with([Element::text("profileId", id)])
}
