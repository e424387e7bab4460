//! The devices of a virtual system, each an `Item` of the hardware section.
//!
//! Source: DSP0243 1.1 §8.3 and CIM_ResourceAllocationSettingData, whose
//! schema puts the fields of an item in alphabetical order.

use super::model::{CdRomController, HardDisk, NetworkAdapter, Size};
use super::xml::Xml;

/// CIM resource types (CIM_ResourceAllocationSettingData.ResourceType).
pub(super) mod resource {
    pub const PROCESSOR: u32 = 3;
    pub const MEMORY: u32 = 4;
    pub const IDE_CONTROLLER: u32 = 5;
    pub const SCSI_CONTROLLER: u32 = 6;
    pub const ETHERNET_ADAPTER: u32 = 10;
    pub const CD_DRIVE: u32 = 15;
    pub const DISK_DRIVE: u32 = 17;
    /// "Other storage device", which means SATA.
    pub const SATA_CONTROLLER: u32 = 20;
}

/// Instance identifiers. Items of several profiles for the same device share one (DSP0243 §9.8).
mod instance {
    pub const PROCESSOR: usize = 1;
    pub const MEMORY: usize = 2;
    pub const SCSI_CONTROLLER: usize = 3;
    pub const CD_CONTROLLER: usize = 4;
    pub const CD_DRIVE: usize = 5;
    /// Of the first adapter.
    pub const ADAPTERS: usize = 10;
    /// Of the first disk.
    pub const DISKS: usize = 100;
}

/// The bus address of the first network adapter in vSphere.
pub(super) const FIRST_ADAPTER_UNIT: usize = 7;

/// An `Item`: a device (DSP0243 §8.3). Fields that are `None` are left out.
#[derive(Default)]
pub(super) struct Item {
    profiles: Option<String>,
    required: Option<bool>,
    address: Option<usize>,
    address_on_parent: Option<usize>,
    allocation_units: Option<&'static str>,
    automatic_allocation: Option<bool>,
    connection: Option<String>,
    description: &'static str,
    name: String,
    host_resource: Option<String>,
    instance: usize,
    parent: Option<usize>,
    subtype: Option<&'static str>,
    kind: u32,
    quantity: Option<u64>,
}

impl Item {
    pub(super) fn write(&self, xml: &mut Xml) {
        let mut attributes = Vec::new();
        attributes.extend(self.profiles.as_deref().map(|profiles| ("ovf:configuration", profiles)));
        attributes.extend(self.required.map(|required| ("ovf:required", if required { "true" } else { "false" })));
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        xml.element("Item", &attributes, |xml| {
            xml.optional_text("rasd:Address", number(self.address).as_deref());
            xml.optional_text("rasd:AddressOnParent", number(self.address_on_parent).as_deref());
            xml.optional_text("rasd:AllocationUnits", self.allocation_units);
            xml.optional_text(
                "rasd:AutomaticAllocation",
                self.automatic_allocation.map(|on| on.to_string()).as_deref(),
            );
            xml.optional_text("rasd:Connection", self.connection.as_deref());
            xml.text("rasd:Description", self.description);
            xml.text("rasd:ElementName", &self.name);
            xml.optional_text("rasd:HostResource", self.host_resource.as_deref());
            xml.text("rasd:InstanceID", &self.instance.to_string());
            xml.optional_text("rasd:Parent", number(self.parent).as_deref());
            xml.optional_text("rasd:ResourceSubType", self.subtype);
            xml.text("rasd:ResourceType", &self.kind.to_string());
            xml.optional_text("rasd:VirtualQuantity", self.quantity.map(|quantity| quantity.to_string()).as_deref());
        });
    }
}

pub(super) fn processors(size: Size, profile: Option<&str>) -> Item {
    Item {
        profiles: profile.map(String::from),
        allocation_units: Some("hertz * 10^6"),
        description: "Number of virtual CPUs",
        name: format!("{} virtual CPUs", size.cpus),
        instance: instance::PROCESSOR,
        kind: resource::PROCESSOR,
        quantity: Some(size.cpus.into()),
        ..Item::default()
    }
}

pub(super) fn memory(size: Size, profile: Option<&str>) -> Item {
    Item {
        profiles: profile.map(String::from),
        allocation_units: Some("byte * 2^20"),
        description: "Memory size",
        name: format!("{} MiB of memory", size.memory_mib),
        instance: instance::MEMORY,
        kind: resource::MEMORY,
        quantity: Some(size.memory_mib),
        ..Item::default()
    }
}

pub(super) fn scsi_controller() -> Item {
    Item {
        address: Some(0),
        description: "SCSI controller",
        name: "SCSI controller 0".into(),
        instance: instance::SCSI_CONTROLLER,
        // VMware's name for its paravirtual controller, pvscsi.
        subtype: Some("VirtualSCSI"),
        kind: resource::SCSI_CONTROLLER,
        ..Item::default()
    }
}

pub(super) fn cd_controller(controller: CdRomController) -> Item {
    let (description, name, subtype, kind) = match controller {
        CdRomController::Sata => {
            ("SATA controller", "SATA controller 0", Some("vmware.sata.ahci"), resource::SATA_CONTROLLER)
        }
        CdRomController::Ide => ("IDE controller", "IDE controller 0", None, resource::IDE_CONTROLLER),
    };
    Item {
        address: Some(0),
        description,
        name: name.into(),
        instance: instance::CD_CONTROLLER,
        subtype,
        kind,
        ..Item::default()
    }
}

pub(super) fn cd_drive() -> Item {
    Item {
        required: Some(false),
        address_on_parent: Some(0),
        // Empty: vCenter connects the environment's image when the VM is started.
        automatic_allocation: Some(false),
        description: "CD/DVD drive",
        name: "CD/DVD drive 1".into(),
        instance: instance::CD_DRIVE,
        parent: Some(instance::CD_CONTROLLER),
        subtype: Some("vmware.cdrom.remotepassthrough"),
        kind: resource::CD_DRIVE,
        ..Item::default()
    }
}

pub(super) fn ethernet_adapter(number: usize, adapter: &NetworkAdapter) -> Item {
    Item {
        address_on_parent: Some(FIRST_ADAPTER_UNIT + number),
        automatic_allocation: Some(true),
        connection: Some(adapter.network.clone()),
        description: "vmxnet3 network adapter",
        name: format!("Network adapter {}", number + 1),
        instance: instance::ADAPTERS + number,
        subtype: Some("VmxNet3"),
        kind: resource::ETHERNET_ADAPTER,
        ..Item::default()
    }
}

pub(super) fn hard_disk(number: usize, disk: &HardDisk) -> Item {
    Item {
        profiles: (!disk.profiles.is_empty()).then(|| disk.profiles.join(" ")),
        address_on_parent: Some(disk.unit as usize),
        description: "Hard disk",
        name: format!("Hard disk {}", number + 1),
        host_resource: Some(format!("ovf:/disk/{}", disk.disk)),
        instance: instance::DISKS + number,
        parent: Some(instance::SCSI_CONTROLLER),
        kind: resource::DISK_DRIVE,
        ..Item::default()
    }
}
