//! XML → descriptor.
//!
//! Reads the parts that the model has, requires those that the product's appliances have, and ignores the rest.
//! [`super::Envelope`] reads descriptors of other vendors.

use roxmltree::Node;

use super::capacity::capacity;
use super::devices::resource;
use super::document::{Look, OVF, ParseError, VMW, VSSD, envelope, number, short, wrong};
use super::items::{Item, Items, cpus, memory_mib};
use super::model::{
    CdRomController, Descriptor, Disk, DiskFile, Eula, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Profile, PropertyGroup, Size, Sizing, Transport,
};
use super::property::{Property, PropertyType, Qualifier};
use super::references::{References, disk_nodes, file_of, no_file, populated};

/// A limit of deployment options, above that of any descriptor: each one reads all the hardware.
const MOST_PROFILES: usize = 100;

impl Descriptor {
    /// Reads a descriptor with one virtual system.
    ///
    /// Parts without a place in the model are ignored. Invalid numbers, references and capacities are errors.
    ///
    /// # Errors
    /// If it is not XML, has a document type definition, or lacks a required part of a virtual system.
    pub fn parse(xml: &str) -> Result<Descriptor, ParseError> {
        envelope(xml, Descriptor::read)
    }

    fn read<'a>(envelope: Node<'a, 'a>) -> Result<Descriptor, ParseError> {
        let system = system(envelope)?;
        let hardware = system.need("VirtualHardwareSection")?;
        Ok(Descriptor {
            name: name(system)?,
            annotation: system.child("AnnotationSection").and_then(|section| section.child_text(OVF, "Annotation")),
            eula: eula(system),
            operating_system: operating_system(system)?,
            product: product(system)?,
            disks: disks(envelope)?,
            networks: networks(envelope)?,
            sizing: sizing(envelope, hardware)?,
            hardware: virtual_hardware(hardware)?,
        })
    }
}

/// The one virtual system of a package.
pub(super) fn system<'a>(envelope: Node<'a, 'a>) -> Result<Node<'a, 'a>, ParseError> {
    if envelope.child("VirtualSystemCollection").is_some() {
        return Err(wrong(envelope, "it has a collection of virtual systems; only a single one can be read"));
    }
    envelope.need("VirtualSystem")
}

/// The name that the import dialog proposes for the VM.
pub(super) fn name<'a>(system: Node<'a, 'a>) -> Result<String, ParseError> {
    system.child_text(OVF, "Name").map_or_else(|| system.need_ovf("id").map(String::from), Ok)
}

fn eula<'a>(system: Node<'a, 'a>) -> Option<Eula> {
    let section = system.child("EulaSection")?;
    Some(Eula { licence: section.child_text(OVF, "License")? })
}

fn operating_system<'a>(system: Node<'a, 'a>) -> Result<OperatingSystem, ParseError> {
    let Some(section) = system.child("OperatingSystemSection") else {
        return Ok(OperatingSystem { cim_type: 0, vmware_type: None, description: String::new() });
    };
    let id = section.need_ovf("id")?;
    Ok(OperatingSystem {
        cim_type: id.parse().map_err(|_| wrong(section, format!("{id:?} is not an operating system type")))?,
        vmware_type: section.attribute((VMW, "osType")).map(String::from),
        description: section.child_text(OVF, "Description").unwrap_or_default(),
    })
}

/// The only product of the product's own appliances.
fn product<'a>(system: Node<'a, 'a>) -> Result<Product, ParseError> {
    let mut sections = system.children_named("ProductSection");
    let product = sections.next().map_or(Ok(Product::default()), product_of)?;
    match sections.next() {
        None => Ok(product),
        Some(second) => Err(wrong(second, "it has several ProductSections; appliances of this product have one")),
    }
}

pub(super) fn product_of<'a>(section: Node<'a, 'a>) -> Result<Product, ParseError> {
    let text = |name| section.child_text(OVF, name);
    let key_part = |name: &str| {
        let what = format!("ovf:{name}");
        section.ovf(name).map(|text| short(section, &what, text, 256).map(String::from)).transpose()
    };
    let mut product = Product {
        class: key_part("class")?,
        instance: key_part("instance")?,
        name: text("Product").unwrap_or_default(),
        vendor: text("Vendor").unwrap_or_default(),
        version: text("Version").unwrap_or_default(),
        full_version: text("FullVersion"),
        url: text("ProductUrl"),
        groups: Vec::new(),
    };
    for node in section.children() {
        if node.has_tag_name((OVF, "Category")) {
            let category = Some(node.text().unwrap_or_default().to_owned());
            product.groups.push(PropertyGroup { category, properties: Vec::new() });
        } else if node.has_tag_name((OVF, "Property")) {
            if product.groups.is_empty() {
                product.groups.push(PropertyGroup::default());
            }
            let group = product.groups.last_mut().expect("one was added");
            group.properties.push(property(node)?);
        }
    }
    Ok(product)
}

fn property<'a>(node: Node<'a, 'a>) -> Result<Property, ParseError> {
    let flag = |name| node.ovf(name).map_or(Ok(false), |value| boolean(node, value));
    let qualifiers = [node.ovf("qualifiers"), node.attribute((VMW, "qualifiers"))];
    Ok(Property {
        key: node.need_ovf("key")?.into(),
        kind: PropertyType::from_name(node.need_ovf("type")?),
        qualifiers: qualifiers.into_iter().flatten().flat_map(Qualifier::parse_list).collect(),
        default: node.ovf("value").map(String::from),
        user_configurable: flag("userConfigurable")?,
        password: flag("password")?,
        label: node.child_text(OVF, "Label").unwrap_or_default(),
        description: node.child_text(OVF, "Description").unwrap_or_default(),
    })
}

/// `xs:boolean`.
fn boolean(node: Node<'_, '_>, value: &str) -> Result<bool, ParseError> {
    match value.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        other => Err(wrong(node, format!("{other:?} is neither true nor false"))),
    }
}

fn disks<'a>(envelope: Node<'a, 'a>) -> Result<Vec<Disk>, ParseError> {
    let references = References::read(envelope)?;
    disk_nodes(envelope)?
        .into_iter()
        .map(|node| {
            let file = file_of(node)
                .map(|id| {
                    let file = references.file(id).ok_or_else(|| no_file(node, id))?;
                    let (name, size) = (file.name.clone(), file.size);
                    Ok::<_, ParseError>(DiskFile { name, size, populated: populated(node)? })
                })
                .transpose()?;
            Ok(Disk { id: node.need_ovf("diskId")?.into(), capacity: capacity(node)?, file })
        })
        .collect()
}

fn networks<'a>(envelope: Node<'a, 'a>) -> Result<Vec<Network>, ParseError> {
    let Some(section) = envelope.child("NetworkSection") else { return Ok(Vec::new()) };
    section
        .children_named("Network")
        .map(|node| {
            let description = node.child_text(OVF, "Description").unwrap_or_default();
            Ok(Network { name: node.need_ovf("name")?.into(), description })
        })
        .collect()
}

fn sizing<'a>(envelope: Node<'a, 'a>, hardware: Node<'a, 'a>) -> Result<Sizing, ParseError> {
    let items = Items::read(hardware)?;
    let options = options(envelope)?;
    if options.is_empty() {
        return Ok(Sizing::Fixed(size(hardware, &items, None)?));
    }
    let profile = |option: DeploymentOption| {
        let size = size(hardware, &items, Some(&option.id))?;
        let DeploymentOption { id, label, description, default } = option;
        Ok(Profile { id, label, description, default, size })
    };
    Ok(Sizing::Profiles(options.into_iter().map(profile).collect::<Result<_, ParseError>>()?))
}

/// A `Configuration` of the DeploymentOptionSection.
pub(super) struct DeploymentOption {
    pub(super) id: String,
    pub(super) label: String,
    pub(super) description: String,
    pub(super) default: bool,
}

/// The deployment options, at least one of them the default if there are any.
pub(super) fn options<'a>(envelope: Node<'a, 'a>) -> Result<Vec<DeploymentOption>, ParseError> {
    let section = envelope.child("DeploymentOptionSection");
    let mut options = Vec::new();
    for node in section.into_iter().flat_map(|section| section.children_named("Configuration")) {
        if options.len() == MOST_PROFILES {
            return Err(wrong(node, format!("there are more than {MOST_PROFILES} deployment options")));
        }
        options.push(DeploymentOption {
            id: node.need_ovf("id")?.into(),
            label: node.child_text(OVF, "Label").unwrap_or_default(),
            description: node.child_text(OVF, "Description").unwrap_or_default(),
            default: node.ovf("default").map_or(Ok(false), |value| boolean(node, value))?,
        });
    }
    // Without a mark the first is the default (DSP0243 §9.8).
    if !options.iter().any(|option| option.default)
        && let Some(first) = options.first_mut()
    {
        first.default = true;
    }
    Ok(options)
}

fn size<'a>(hardware: Node<'a, 'a>, items: &Items<'a>, profile: Option<&str>) -> Result<Size, ParseError> {
    let devices = items.devices(profile);
    let no = |what: &str| wrong(hardware, format!("the hardware has no {what}"));
    let cpus = cpus(&devices)?.ok_or_else(|| no("processors"))?;
    Ok(Size { cpus, memory_mib: memory_mib(&devices)?.ok_or_else(|| no("memory"))? })
}

fn virtual_hardware<'a>(section: Node<'a, 'a>) -> Result<Hardware, ParseError> {
    let config = |element: &'static str| {
        let all = section.children().filter(move |node| node.has_tag_name((VMW, element)));
        all.filter_map(|node| Some((node.attribute((VMW, "key"))?, node.attribute((VMW, "value"))?)))
    };
    let option = |key: &str| config("Config").chain(config("ExtraConfig")).find(|(found, _)| *found == key);
    let secure_boot = option("bootOptions.efiSecureBootEnabled").is_some_and(|(_, value)| value == "true");
    let efi = option("firmware").is_some_and(|(_, value)| value == "efi");
    Ok(Hardware {
        version: hardware_version(section).unwrap_or_default(),
        transports: transports(section),
        disks: hard_disks(section)?,
        adapters: Item::of_type(section, resource::ETHERNET_ADAPTER)
            .map(|item| Ok(NetworkAdapter { network: item.need("Connection")? }))
            .collect::<Result<_, ParseError>>()?,
        cd_rom: cd_rom(section),
        firmware: if efi { Firmware::Efi { secure_boot } } else { Firmware::Bios },
        extra_config: config("ExtraConfig").map(|(key, value)| (key.into(), value.into())).collect(),
    })
}

/// The newest of the versions listed, such as in `vmx-13 vmx-11`.
fn hardware_version<'a>(section: Node<'a, 'a>) -> Option<u32> {
    let types = section.child("System")?.child_text(VSSD, "VirtualSystemType")?;
    types.split([' ', ',']).filter_map(|kind| kind.trim().strip_prefix("vmx-")?.parse().ok()).max()
}

fn transports<'a>(section: Node<'a, 'a>) -> Vec<Transport> {
    let names = section.ovf("transport").unwrap_or_default();
    let known = |name: &str| [Transport::Iso, Transport::GuestInfo].into_iter().find(|known| known.name() == name);
    names.split_whitespace().filter_map(known).collect()
}

fn hard_disks<'a>(section: Node<'a, 'a>) -> Result<Vec<HardDisk>, ParseError> {
    // A profile or the operator adds the disk of a drive without a HostResource later.
    Item::of_type(section, resource::DISK_DRIVE)
        .filter_map(|item| Some((item, item.text("HostResource")?)))
        .map(|(item, host)| {
            let unit = item.text("AddressOnParent").map_or(Ok(0), |text| number(item.0, &text))?;
            Ok(HardDisk {
                disk: disk_id(&host).ok_or_else(|| wrong(item.0, format!("{host:?} is not a disk")))?.into(),
                unit,
                profiles: item.profiles(),
            })
        })
        .collect()
}

/// The disk that a HostResource refers to (DSP0243 §8.3).
pub(super) fn disk_id(host: &str) -> Option<&str> {
    host.strip_prefix("ovf:").unwrap_or(host).strip_prefix("/disk/")
}

fn cd_rom<'a>(section: Node<'a, 'a>) -> Option<CdRomController> {
    // vSphere has two resource types for drives: 15 (CD) and 16 (DVD).
    let drive = [resource::CD_DRIVE, resource::CD_DRIVE + 1]
        .into_iter()
        .find_map(|kind| Item::of_type(section, kind).next())?;
    let parent = drive.text("Parent")?;
    let controller = Item::all(section).find(|item| item.text("InstanceID").as_ref() == Some(&parent))?;
    let sata = controller.text("ResourceType") == Some(resource::SATA_CONTROLLER.to_string());
    Some(if sata { CdRomController::Sata } else { CdRomController::Ide })
}
