//! The OVF environment of a VM, made from the OVA's own ProductSection by the
//! rules that vCenter keeps: what its form would refuse is refused here.

use std::collections::BTreeMap;
use std::path::Path;

use contract::image::{self, ImageFacts};
use contract::properties::FormProperty;
use ova::ovf::environment::{self, Adapter, Platform};
use ova::ovf::{Product, Property, PropertyGroup, PropertyType, Qualifier};

use super::{Source, records};

/// The name of the lab's network, as a guest learns it.
const NETWORK: &str = "Lab Network";

/// Makes the document for a VM with these properties and this MAC address.
///
/// # Errors
/// When the form would not take the properties.
pub fn document(source: &Source, properties: &BTreeMap<String, String>, mac: &str) -> anyhow::Result<String> {
    let product = match source {
        Source::Ova { unpacked } | Source::Disk { unpacked, .. } => unpacked.descriptor()?.product,
        Source::Tree { tree } => form_of(tree)?,
    };
    let platform = Platform::vsphere("8.0.3", "vm-1");
    let adapters = [Adapter { mac: mac.to_owned(), network: NETWORK.to_owned() }];
    Ok(environment::document(&product, properties, &platform, &adapters)?)
}

/// The form of an OVA made from this root tree.
fn form_of(tree: &Path) -> anyhow::Result<Product> {
    let image: ImageFacts = records::load(&tree.join(image::PATH.trim_start_matches('/')))?;
    let minors: Vec<String> = image.kubernetes.into_iter().map(|release| release.minor).collect();
    let field = |property: FormProperty| Property {
        key: property.key.to_owned(),
        kind: PropertyType::from_name(property.ovf_type),
        qualifiers: property.qualifiers.as_deref().map(Qualifier::parse_list).unwrap_or_default(),
        default: property.default,
        user_configurable: true,
        password: property.password,
        label: property.label.to_owned(),
        description: property.description.to_owned(),
    };
    let properties = contract::properties::form(image.role, &minors).into_iter().map(field).collect();
    Ok(Product { groups: vec![PropertyGroup { category: None, properties }], ..Product::default() })
}
