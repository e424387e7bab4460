//! A descriptor of any vendor, as far as `kaas ova` shows it.
//!
//! Source: DSP0243 1.1. Reads what it allows of a package with one virtual system. Differences to
//! [`super::Descriptor`], which is what the product writes and imports: any number of products, hardware without
//! processors or memory, devices combined of several `Item`s, capacities by property.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::capacity::{capacity, in_units, property};
use super::devices::resource;
use super::document::{Look, ParseError, envelope, short};
use super::items::{Items, cpus, memory_mib};
use super::model::Product;
use super::parse::{disk_id, name, options, product_of, system};
use super::references::{References, disk_nodes, file_of, no_file};

/// What a descriptor of any vendor says.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Name of the virtual system (`Name`, or else `ovf:id`).
    pub name: String,
    /// The products, told apart by class and instance (DSP0243 §9.5); the first is usually the appliance itself.
    pub products: Vec<Product>,
    /// The disks (DSP0243 §9.1), in order.
    pub disks: Vec<VirtualDisk>,
    /// The hardware: one for each deployment option (DSP0243 §9.8), or one without an identifier. Never empty.
    pub variants: Vec<Variant>,
    /// How many hardware sections there are (DSP0243 §8.1), at least 1; the variants are of the first.
    pub hardware_sections: usize,
    /// The files of the package.
    pub references: References,
}

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualDisk {
    /// `ovf:diskId`.
    pub id: String,
    /// Size as the guest sees it, in bytes; of a property its default. None if that is unknown.
    pub capacity: Option<u64>,
    /// The key of the property that has the capacity, as the descriptor writes it; the operator sets it at import.
    pub capacity_property: Option<String>,
    /// The name of the file with its content (`ovf:href`); none if it begins empty.
    pub file: Option<String>,
}

/// What a VM gets with one deployment option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// `ovf:id` of the deployment option; none if the descriptor has no options.
    pub id: Option<String>,
    /// Name of the option in the import dialog; empty without options.
    pub label: String,
    /// Whether it is taken if the operator chooses none.
    pub default: bool,
    /// Virtual processors, if the descriptor says.
    pub cpus: Option<u32>,
    /// Memory in MiB, rounded down, if the descriptor says.
    pub memory_mib: Option<u64>,
    /// Which of [`Envelope::disks`] are attached, by their identifiers.
    pub disks: Vec<String>,
}

impl Envelope {
    /// Reads a descriptor with one virtual system.
    ///
    /// # Errors
    /// When it is not XML, has a document type definition, is not OVF 1, has a collection of virtual systems or a
    /// difference disk; or when a number, a reference or a unit makes no sense.
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
            // A default that is no number, such as "40GB", matters at import only.
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
