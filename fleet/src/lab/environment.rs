//! The OVF environment of a VM, made from the OVA's own ProductSection by the
//! rules that vCenter keeps: what its form would refuse is refused here.

use std::collections::BTreeMap;

use ova::ovf::environment::{self, Adapter, Platform};
use ova::ovf::{Product, Property, PropertyGroup, PropertyType};

use super::Source;

/// The name of the lab's network, as a guest learns it.
const NETWORK: &str = "Lab Network";

/// Makes the document for a VM with these properties and this MAC address.
///
/// # Errors
/// When the form would not take the properties.
pub fn document(source: &Source, properties: &BTreeMap<String, String>, mac: &str) -> anyhow::Result<String> {
    let product = match source {
        Source::Ova { unpacked } => unpacked.descriptor()?.product,
        Source::Tree { .. } => form_of(properties),
    };
    let platform = Platform::vsphere("8.0.3", "vm-1");
    let adapters = [Adapter { mac: mac.to_owned(), network: NETWORK.to_owned() }];
    Ok(environment::document(&product, properties, &platform, &adapters)?)
}

/// A root tree has no form: one that has just these fields.
fn form_of(properties: &BTreeMap<String, String>) -> Product {
    let field = |key: &String| Property {
        key: key.clone(),
        kind: PropertyType::String,
        qualifiers: Vec::new(),
        default: None,
        user_configurable: true,
        password: false,
        label: key.clone(),
        description: String::new(),
    };
    let group = PropertyGroup { category: None, properties: properties.keys().map(field).collect() };
    Product { groups: vec![group], ..Product::default() }
}
