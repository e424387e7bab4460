//! A descriptor of any vendor, as `kaas ova` shows it.
//!
//! Source: DSP0243 1.1. Reads the forms that it allows for a package with one virtual system. [`super::Descriptor`] is
//! the form that the product writes and imports. This one also has any number of products, hardware without processors
//! or memory, devices of several `Item`s, and capacities by property.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::capacity::{capacity, in_units, property};
use super::devices::resource;
use super::document::{Look, ParseError, envelope, short};
use super::items::{Items, cpus, memory_mib};
use super::model::Product;
use super::parse::{disk_id, name, options, product_of, system};
use super::references::{References, disk_nodes, file_of, no_file};

/// The contents of a descriptor of any vendor.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Name of the virtual system (`Name`, or else `ovf:id`).
    pub name: String,
    /// The products, identified by class and instance (DSP0243 §9.5). The first one is usually the appliance itself.
    pub products: Vec<Product>,
    /// The disks (DSP0243 §9.1), in order.
    pub disks: Vec<VirtualDisk>,
    /// The hardware: one for each deployment option (DSP0243 §9.8), or one without an identifier. Never empty.
    pub variants: Vec<Variant>,
    /// The number of hardware sections (DSP0243 §8.1), at least 1. The variants are those of the first.
    pub hardware_sections: usize,
    /// The files of the package.
    pub references: References,
}

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualDisk {
    /// `ovf:diskId`.
    pub id: String,
    /// Size for the guest, in bytes. If a property has it, the property's default. `None` if it is unknown.
    pub capacity: Option<u64>,
    /// The key of the property with the capacity, as the descriptor writes it. The operator sets it at import.
    pub capacity_property: Option<String>,
    /// The name of the file with its content (`ovf:href`). `None` if the disk is empty at first.
    pub file: Option<String>,
}

/// The hardware of a VM with one deployment option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// `ovf:id` of the deployment option. `None` if the descriptor has no options.
    pub id: Option<String>,
    /// Name of the option in the import dialog; empty without options.
    pub label: String,
    /// Whether it is used if the operator selects none.
    pub default: bool,
    /// The number of virtual processors, if the descriptor has it.
    pub cpus: Option<u32>,
    /// Memory in MiB, rounded down, if the descriptor has it.
    pub memory_mib: Option<u64>,
    /// The attached disks: identifiers of [`Envelope::disks`].
    pub disks: Vec<String>,
}

impl Envelope {
    /// Reads a descriptor with one virtual system.
    ///
    /// # Errors
    /// If it is not XML, has a document type definition, or is not OVF 1. If it has a collection of virtual systems or
    /// a difference disk. If a number, a reference or a unit is invalid.
    pub fn parse(xml: &str) -> Result<Envelope, ParseError> {
        envelope(xml, Envelope::read)
    }

    fn read<'a>(envelope: Node<'a, 'a>) -> Result<Envelope, ParseError> {
        let system = system(envelope)?;
        let hardware = system.need("VirtualHardwareSection")?;
        let mut references = References::read(envelope)?;
        let products = system.children_named("ProductSection").map(product_of).collect::<Result<Vec<_>, _>>()?;
        let disks = disks(envelope, &references, &products)?;
        references.read_disks(envelope)?;
        Ok(Envelope {
            name: name(system)?,
            products,
            disks,
            variants: variants(envelope, hardware)?,
            hardware_sections: system.children_named("VirtualHardwareSection").count(),
            references,
        })
    }
}

fn disks<'a>(
    envelope: Node<'a, 'a>,
    references: &References,
    products: &[Product],
) -> Result<Vec<VirtualDisk>, ParseError> {
    // Tools write the bare key, or the key of the environment.
    let mut values = BTreeMap::new();
    for (product, property) in products.iter().flat_map(|product| product.properties().map(move |own| (product, own))) {
        for key in [property.key.clone(), product.environment_key(property)] {
            values.entry(key).or_insert(property.default.as_deref());
        }
    }
    let disk = |node: Node<'a, 'a>| {
        let file = file_of(node).map(|id| references.file(id).ok_or_else(|| no_file(node, id))).transpose()?;
        let key = property(node);
        let capacity = match key {
            // A default that is not a number, such as "40GB", matters at import only.
            Some(key) => {
                let amount = values.get(key).copied().flatten().and_then(|value| value.trim().parse().ok());
                amount.and_then(|amount| in_units(node, amount))
            }
            None => Some(capacity(node)?),
        };
        Ok(VirtualDisk {
            id: node.need_ovf("diskId")?.into(),
            capacity,
            capacity_property: key.map(String::from),
            file: file.map(|file| file.name.clone()),
        })
    };
    disk_nodes(envelope)?.into_iter().map(disk).collect()
}

fn variants<'a>(envelope: Node<'a, 'a>, hardware: Node<'a, 'a>) -> Result<Vec<Variant>, ParseError> {
    let items = Items::read(hardware)?;
    let variant = |id: Option<String>, label, default| {
        let devices = items.devices(id.as_deref());
        let drives = devices.iter().filter(|device| device.is(resource::DISK_DRIVE));
        let mut disks = Vec::new();
        for host in drives.filter_map(|device| device.text("HostResource")) {
            disks.extend(disk_id(short(hardware, "HostResource", host.trim(), 256)?).map(String::from));
        }
        Ok(Variant { id, label, default, cpus: cpus(&devices)?, memory_mib: memory_mib(&devices)?, disks })
    };
    let options = options(envelope)?;
    if options.is_empty() {
        return Ok(vec![variant(None, String::new(), true)?]);
    }
    options.into_iter().map(|option| variant(Some(option.id), option.label, option.default)).collect()
}
