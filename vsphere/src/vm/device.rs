//! A VM's devices, identified by key, UUID or path. Positions are not stable: vCenter moves devices.

use std::collections::BTreeSet;

use crate::disk::normal_uuid;
use crate::reference::MoRef;
use crate::soap::Element;

/// Parts of the type names of controllers for disks.
const CONTROLLERS: [&str; 5] = ["SCSI", "LsiLogic", "BusLogic", "AHCI", "NVME"];

/// A virtual disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its identifier among the VM's devices while it is attached.
    pub key: i32,
    /// Its label, such as `Hard disk 2`.
    pub label: String,
    /// The key of its controller.
    pub controller: i32,
    /// Its unit number on the controller.
    pub unit: i32,
    /// Its size in bytes.
    pub capacity: u64,
    /// Its file, such as `[datastore] vm/disk.vmdk`. `None` for a disk without a file.
    pub path: Option<String>,
    /// Its UUID in lower case with dashes, which stays with its file.
    pub uuid: Option<String>,
    /// Its mode, such as `persistent`.
    pub mode: String,
    /// The identifier if it is a First Class Disk, such as a volume of a storage driver (`VirtualDisk.vDiskId`).
    pub first_class: Option<String>,
    /// The files that it is a difference to, nearest first. Then it is part of a snapshot, or a linked clone.
    pub parents: Vec<String>,
    pub(super) element: Element,
}

/// The network of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterNetwork {
    /// A network of standard switches, by name.
    Standard(String),
    /// A port group of a distributed switch.
    Distributed(MoRef),
    /// A network of another network manager, by its identifier.
    Opaque(String),
    /// An unknown network.
    Unknown,
}

/// A network adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Its identifier among the VM's devices.
    pub key: i32,
    /// Its label, such as `Network adapter 1`.
    pub label: String,
    /// Its MAC address.
    pub mac: String,
    /// The network that it is on.
    pub network: AdapterNetwork,
    /// Whether it is connected now.
    pub connected: bool,
    /// Whether it is connected at the next power-on.
    pub start_connected: bool,
    pub(super) element: Element,
}

/// A controller for disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its identifier among the VM's devices.
    pub key: i32,
    /// Its type, such as `ParaVirtualSCSIController`.
    pub kind: String,
    /// Its number among the VM's controllers of its family, from 0.
    pub bus: i32,
    /// Units in use.
    taken: BTreeSet<i32>,
}

impl Controller {
    /// Whether it is a SCSI controller. SCSI controllers are counted apart from those of SATA and NVMe.
    pub fn is_scsi(&self) -> bool {
        !self.kind.contains("AHCI") && !self.kind.contains("NVME")
    }

    /// Marks a unit as used.
    pub(super) fn take(&mut self, unit: Option<i32>) {
        self.taken.extend(unit);
    }

    /// A free unit. `None` if the controller is full.
    pub fn free_unit(&self) -> Option<i32> {
        let (is_sata, is_nvme) = (self.kind.contains("AHCI"), self.kind.contains("NVME"));
        // 15 units of SCSI without the controller's, 30 of SATA, 15 of NVMe ("vSphere configuration maximums").
        let (units, own) = match (is_sata, is_nvme) {
            (true, _) => (30, None),
            (_, true) => (15, None),
            _ => (16, Some(7)),
        };
        (0..units).find(|unit| !self.taken.contains(unit) && own != Some(*unit))
    }
}

/// Devices of every VM, without access to objects outside the VM (`VirtualMachineDefaultDevices`, and others that
/// vCenter adds).
const EVERYWHERE: [&str; 4] =
    ["VirtualKeyboard", "VirtualPointingDevice", "VirtualMachineVideoCard", "VirtualMachineVMCIDevice"];

/// A device that is no disk, adapter or controller, and not in every VM: a drive, a port, a passthrough device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Other {
    /// Its type, such as `VirtualCdrom`.
    pub kind: String,
    /// The type of its backing, such as `VirtualCdromIsoBackingInfo`. Empty if it has none.
    pub backing: String,
    /// The file or address of its backing. Empty for a device of the host, or without a backing.
    pub leads_to: String,
}

/// A VM's disks, adapters, controllers, and other devices.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Disks.
    pub disks: Vec<Disk>,
    /// Network adapters.
    pub adapters: Vec<Adapter>,
    /// Controllers of disks.
    pub controllers: Vec<Controller>,
    /// The other devices, sorted.
    pub others: Vec<Other>,
}

impl Devices {
    /// Reads `config.hardware.device`.
    pub(super) fn read(devices: &Element) -> Self {
        let mut found = Self::default();
        for device in devices.children() {
            let Some(key) = device.parsed::<i32>("key") else { continue };
            let kind = device.kind().unwrap_or_default();
            if kind == "VirtualDisk" {
                found.disks.push(disk(key, device));
            } else if device.child("macAddress").is_some() {
                found.adapters.push(adapter(key, device));
            } else if CONTROLLERS.iter().any(|part| kind.contains(part)) {
                let bus = device.parsed("busNumber").unwrap_or_default();
                found.controllers.push(Controller { key, kind: kind.to_owned(), bus, taken: BTreeSet::new() });
            } else if !kind.ends_with("Controller") && !EVERYWHERE.contains(&kind) {
                found.others.push(other(kind, device));
            }
        }
        found.others.sort();
        for controller in &mut found.controllers {
            let on_it =
                devices.children().iter().filter(|device| device.parsed("controllerKey") == Some(controller.key));
            controller.taken = on_it.filter_map(|device| device.parsed("unitNumber")).collect();
        }
        found
    }

    /// The disk with a UUID, in any notation.
    pub fn disk(&self, uuid: &str) -> Option<&Disk> {
        let uuid = normal_uuid(uuid)?;
        self.disks.iter().find(|disk| disk.uuid.as_deref() == Some(&uuid))
    }

    /// The adapter with a key.
    pub fn adapter(&self, key: i32) -> Option<&Adapter> {
        self.adapters.iter().find(|adapter| adapter.key == key)
    }
}

fn label(device: &Element) -> String {
    device.at(&["deviceInfo", "label"]).map(Element::value).unwrap_or_default().to_owned()
}

fn disk(key: i32, device: &Element) -> Disk {
    let backing = device.child("backing");
    let text = |name: &str| backing.and_then(|backing| backing.text_of(name)).filter(|text| !text.is_empty());
    let in_kib = || device.parsed::<u64>("capacityInKB").map(|kib| kib.saturating_mul(1024));
    let parents =
        std::iter::successors(backing.and_then(|backing| backing.child("parent")), |parent| parent.child("parent"));
    Disk {
        key,
        label: label(device),
        controller: device.parsed("controllerKey").unwrap_or_default(),
        unit: device.parsed("unitNumber").unwrap_or_default(),
        capacity: device.parsed("capacityInBytes").or_else(in_kib).unwrap_or_default(),
        path: text("fileName").map(str::to_owned),
        uuid: text("uuid").and_then(normal_uuid),
        mode: text("diskMode").unwrap_or_default().to_owned(),
        first_class: device.at(&["vDiskId", "id"]).map(|id| id.value().to_owned()).filter(|id| !id.is_empty()),
        parents: parents.filter_map(|parent| parent.text_of("fileName")).map(str::to_owned).collect(),
        element: device.clone(),
    }
}

fn other(kind: &str, device: &Element) -> Other {
    let backing = device.child("backing");
    let text = |name: &str| backing.and_then(|backing| backing.text_of(name)).filter(|text| !text.is_empty());
    Other {
        kind: kind.to_owned(),
        backing: backing.and_then(Element::kind).unwrap_or_default().to_owned(),
        leads_to: text("fileName").or_else(|| text("serviceURI")).unwrap_or_default().to_owned(),
    }
}

fn adapter(key: i32, device: &Element) -> Adapter {
    let connectable = device.child("connectable");
    let flag = |name: &str| connectable.is_some_and(|connectable| connectable.flag(name));
    Adapter {
        key,
        label: label(device),
        mac: device.text_of("macAddress").unwrap_or_default().to_owned(),
        network: device.child("backing").map_or(AdapterNetwork::Unknown, network),
        connected: flag("connected"),
        start_connected: flag("startConnected"),
        element: device.clone(),
    }
}

pub(super) fn network(backing: &Element) -> AdapterNetwork {
    let portgroup = backing.at(&["port", "portgroupKey"]).map(Element::value);
    let opaque = backing.text_of("opaqueNetworkId");
    match (portgroup, opaque, backing.text_of("deviceName")) {
        (Some(key), ..) => AdapterNetwork::Distributed(MoRef::new("DistributedVirtualPortgroup", key)),
        (_, Some(id), _) => AdapterNetwork::Opaque(id.to_owned()),
        (_, _, Some(name)) => AdapterNetwork::Standard(name.to_owned()),
        _ => AdapterNetwork::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_devices_exclude_those_of_every_vm() {
        let device = |key: i32, kind: &str| Element::new("VirtualDevice").of(kind).with([Element::text("key", key)]);
        let behind = |kind: &str, part: Element| Element::new("backing").of(kind).with([part]);
        let iso = behind("VirtualCdromIsoBackingInfo", Element::text("fileName", "[ds] x.iso"));
        let uri = behind("VirtualSerialPortURIBackingInfo", Element::text("serviceURI", "tcp://10.0.0.9:1"));
        let own = behind("VirtualCdromAtapiBackingInfo", Element::text("deviceName", "/dev/cdrom"));
        let devices = Element::new("device").with([
            device(600, "VirtualKeyboard"),
            device(15000, "VirtualAHCIController"),
            device(7000, "VirtualUSBXHCIController"),
            device(9000, "VirtualSerialPort").with([uri]),
            device(3001, "VirtualCdrom").with([iso]),
            device(3002, "VirtualCdrom").with([own]),
            device(12000, "VirtualMachineVMCIDevice"),
        ]);
        let found = Devices::read(&devices).others;
        let told: Vec<String> = found.iter().map(|it| format!("{} {} {}", it.kind, it.backing, it.leads_to)).collect();
        assert_eq!(
            told,
            [
                "VirtualCdrom VirtualCdromAtapiBackingInfo ",
                "VirtualCdrom VirtualCdromIsoBackingInfo [ds] x.iso",
                "VirtualSerialPort VirtualSerialPortURIBackingInfo tcp://10.0.0.9:1",
            ]
        );
    }
}
