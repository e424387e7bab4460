//! Descriptor → XML.
//!
//! The order of elements is that of the DMTF schema dsp8023 1.1. Attributes are
//! in alphabetical order.

use super::check::InvalidDescriptor;
use super::devices::{cd_controller, cd_drive, ethernet_adapter, hard_disk, memory, processors, scsi_controller};
use super::model::{Descriptor, Disk, DiskFile, Firmware, Product, Profile, Sizing};
use super::property::{Property, PropertyType, Qualifier};
use super::xml::Xml;

/// The disk format in all descriptors of vSphere for streamOptimized disks.
const STREAM_OPTIMIZED: &str = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized";

/// Namespaces with their usual prefixes.
const NAMESPACES: [(&str, &str); 6] = [
    ("xmlns", super::document::OVF),
    ("xmlns:ovf", super::document::OVF),
    ("xmlns:rasd", super::document::RASD),
    ("xmlns:vmw", super::document::VMW),
    ("xmlns:vssd", super::document::VSSD),
    ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"),
];

impl Descriptor {
    /// Checks the descriptor and writes it as XML. Equal descriptors give equal bytes. The error has all problems.
    pub fn to_xml(&self) -> Result<String, InvalidDescriptor> {
        self.check()?;
        let mut xml = Xml::new();
        xml.element("Envelope", &NAMESPACES, |xml| {
            references(xml, &self.disks);
            disk_section(xml, &self.disks);
            network_section(xml, self);
            if let Sizing::Profiles(profiles) = &self.sizing {
                deployment_option_section(xml, profiles);
            }
            virtual_system(xml, self);
        });
        xml.finish().map_err(InvalidDescriptor::from)
    }
}

/// The files of disks, each with the identifier by which its disk refers to it.
fn files(disks: &[Disk]) -> impl Iterator<Item = (String, &DiskFile)> {
    disks.iter().filter_map(|disk| Some((format!("file-{}", disk.id), disk.file.as_ref()?)))
}

fn references(xml: &mut Xml, disks: &[Disk]) {
    xml.element("References", &[], |xml| {
        for (id, file) in files(disks) {
            let size = file.size.map(|size| size.to_string());
            let mut attributes = vec![("ovf:href", file.name.as_str()), ("ovf:id", &id)];
            attributes.extend(size.iter().map(|size| ("ovf:size", size.as_str())));
            xml.empty("File", &attributes);
        }
    });
}

fn disk_section(xml: &mut Xml, disks: &[Disk]) {
    xml.element("DiskSection", &[], |xml| {
        xml.text("Info", "Virtual disks");
        for disk in disks {
            let capacity = disk.capacity.to_string();
            let file_id = format!("file-{}", disk.id);
            let populated = disk.file.as_ref().and_then(|file| file.populated).map(|bytes| bytes.to_string());
            let mut attributes = vec![
                ("ovf:capacity", capacity.as_str()),
                // Bytes, the unit that no importer misreads.
                ("ovf:capacityAllocationUnits", "byte"),
                ("ovf:diskId", &disk.id),
            ];
            if disk.file.is_some() {
                attributes.push(("ovf:fileRef", &file_id));
            }
            attributes.push(("ovf:format", STREAM_OPTIMIZED));
            if let Some(populated) = &populated {
                attributes.push(("ovf:populatedSize", populated));
            }
            xml.empty("Disk", &attributes);
        }
    });
}

fn network_section(xml: &mut Xml, descriptor: &Descriptor) {
    xml.element("NetworkSection", &[], |xml| {
        xml.text("Info", "Logical networks");
        for network in &descriptor.networks {
            xml.element("Network", &[("ovf:name", &network.name)], |xml| xml.text("Description", &network.description));
        }
    });
}

fn deployment_option_section(xml: &mut Xml, profiles: &[Profile]) {
    xml.element("DeploymentOptionSection", &[], |xml| {
        xml.text("Info", "Sizes");
        for profile in profiles {
            let mut attributes = vec![("ovf:id", profile.id.as_str())];
            if profile.default {
                attributes.insert(0, ("ovf:default", "true"));
            }
            xml.element("Configuration", &attributes, |xml| {
                xml.text("Label", &profile.label);
                xml.text("Description", &profile.description);
            });
        }
    });
}

fn virtual_system(xml: &mut Xml, descriptor: &Descriptor) {
    xml.element("VirtualSystem", &[("ovf:id", &descriptor.name)], |xml| {
        xml.text("Info", "A virtual machine");
        xml.text("Name", &descriptor.name);
        if let Some(annotation) = &descriptor.annotation {
            xml.element("AnnotationSection", &[], |xml| {
                xml.text("Info", "A description of the virtual machine");
                xml.text("Annotation", annotation);
            });
        }
        if let Some(eula) = &descriptor.eula {
            xml.element("EulaSection", &[], |xml| {
                xml.text("Info", "Licence to be accepted");
                xml.text("License", &eula.licence);
            });
        }
        operating_system_section(xml, descriptor);
        product_section(xml, &descriptor.product);
        virtual_hardware_section(xml, descriptor);
    });
}

fn operating_system_section(xml: &mut Xml, descriptor: &Descriptor) {
    let system = &descriptor.operating_system;
    let cim_type = system.cim_type.to_string();
    let mut attributes = vec![("ovf:id", cim_type.as_str())];
    attributes.extend(system.vmware_type.iter().map(|kind| ("vmw:osType", kind.as_str())));
    xml.element("OperatingSystemSection", &attributes, |xml| {
        xml.text("Info", "The guest operating system");
        xml.text("Description", &system.description);
    });
}

fn product_section(xml: &mut Xml, product: &Product) {
    let mut attributes = Vec::new();
    attributes.extend(product.class.iter().map(|class| ("ovf:class", class.as_str())));
    attributes.extend(product.instance.iter().map(|instance| ("ovf:instance", instance.as_str())));
    xml.element("ProductSection", &attributes, |xml| {
        xml.text("Info", "The product and its properties");
        xml.text("Product", &product.name);
        xml.text("Vendor", &product.vendor);
        xml.text("Version", &product.version);
        xml.optional_text("FullVersion", product.full_version.as_deref());
        xml.optional_text("ProductUrl", product.url.as_deref());
        for group in &product.groups {
            xml.optional_text("Category", group.category.as_deref());
            for property in &group.properties {
                write_property(xml, property);
            }
        }
    });
}

fn write_property(xml: &mut Xml, property: &Property) {
    let (vmware, standard): (Vec<_>, Vec<_>) =
        property.qualifiers.iter().partition(|qualifier| matches!(qualifier, Qualifier::Ip));
    let list = |qualifiers: Vec<&Qualifier>| qualifiers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (vmware, standard) = (list(vmware), list(standard));
    let kind = property.kind.to_string();
    // vSphere shows and keeps booleans as True and False.
    let default = property.default.as_ref().map(|value| match property.kind {
        PropertyType::Boolean => property.admit(value).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    });

    let mut attributes = vec![("ovf:key", property.key.as_str())];
    if property.password {
        attributes.push(("ovf:password", "true"));
    }
    if !standard.is_empty() {
        attributes.push(("ovf:qualifiers", &standard));
    }
    attributes.push(("ovf:type", &kind));
    // Always written, because import tools ignore properties without it.
    attributes.push(("ovf:userConfigurable", if property.user_configurable { "true" } else { "false" }));
    if let Some(default) = &default {
        attributes.push(("ovf:value", default));
    }
    if !vmware.is_empty() {
        attributes.push(("vmw:qualifiers", &vmware));
    }
    xml.element("Property", &attributes, |xml| {
        xml.text("Label", &property.label);
        xml.text("Description", &property.description);
    });
}

fn virtual_hardware_section(xml: &mut Xml, descriptor: &Descriptor) {
    let hardware = &descriptor.hardware;
    let transports: Vec<_> = hardware.transports.iter().map(|transport| transport.name()).collect();
    let transports = transports.join(" ");
    let attributes: &[_] = if transports.is_empty() { &[] } else { &[("ovf:transport", transports.as_str())] };
    xml.element("VirtualHardwareSection", attributes, |xml| {
        xml.text("Info", "Virtual hardware");
        xml.element("System", &[], |xml| {
            xml.text("vssd:ElementName", "Virtual Hardware Family");
            xml.text("vssd:InstanceID", "0");
            xml.text("vssd:VirtualSystemIdentifier", &descriptor.name);
            xml.text("vssd:VirtualSystemType", &format!("vmx-{}", hardware.version));
        });
        match &descriptor.sizing {
            Sizing::Fixed(size) => {
                processors(*size, None).write(xml);
                memory(*size, None).write(xml);
            }
            Sizing::Profiles(profiles) => {
                profiles.iter().for_each(|profile| processors(profile.size, Some(&profile.id)).write(xml));
                profiles.iter().for_each(|profile| memory(profile.size, Some(&profile.id)).write(xml));
            }
        }
        scsi_controller().write(xml);
        if let Some(controller) = hardware.cd_rom {
            cd_controller(controller).write(xml);
            cd_drive().write(xml);
        }
        for (number, adapter) in hardware.adapters.iter().enumerate() {
            ethernet_adapter(number, adapter).write(xml);
        }
        for (number, disk) in hardware.disks.iter().enumerate() {
            hard_disk(number, disk).write(xml);
        }
        config(xml, "firmware", hardware.firmware.name());
        if let Firmware::Efi { secure_boot } = hardware.firmware {
            config(xml, "bootOptions.efiSecureBootEnabled", if secure_boot { "true" } else { "false" });
        }
        for (key, value) in &hardware.extra_config {
            xml.empty("vmw:ExtraConfig", &[("ovf:required", "false"), ("vmw:key", key), ("vmw:value", value)]);
        }
    });
}

fn config(xml: &mut Xml, key: &str, value: &str) {
    xml.empty("vmw:Config", &[("ovf:required", "false"), ("vmw:key", key), ("vmw:value", value)]);
}
