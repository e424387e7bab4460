//! The OVF environment: the document by which a guest learns its properties, as vCenter makes it.
//!
//! Source: DSP0243 1.1 §11 (environment document), §9.5.1 (keys), and documents
//! made by vCenter for what is VMware's own (`ve:`). The rules for values are
//! vCenter's: what it would refuse at import is refused here, all at once.

use std::collections::BTreeMap;

use super::check::{Findings, Problem, list};
use super::devices::FIRST_ADAPTER_UNIT;
use super::model::Product;
use super::xml::Xml;

const ENVIRONMENT: &str = "http://schemas.dmtf.org/ovf/environment/1";
const VMWARE: &str = "http://www.vmware.com/schema/ovfenv";

/// What the platform says of itself and of the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// What runs the VM; vSphere says `VMware ESXi`.
    pub kind: String,
    /// Its version, such as `8.0.3`.
    pub version: String,
    /// Who makes it; vSphere says `VMware, Inc.`
    pub vendor: String,
    /// Language, such as `en`.
    pub locale: String,
    /// The VM's identifier in vCenter, such as `vm-1234`. Without vCenter there is none.
    pub vcenter_id: Option<String>,
}

impl Platform {
    /// A vSphere host of the given version, under vCenter.
    pub fn vsphere(version: &str, vcenter_id: &str) -> Platform {
        Platform {
            kind: "VMware ESXi".into(),
            version: version.into(),
            vendor: "VMware, Inc.".into(),
            locale: "en".into(),
            vcenter_id: Some(vcenter_id.into()),
        }
    }
}

/// A network adapter of the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its MAC address, such as `00:50:56:aa:bb:cc`.
    pub mac: String,
    /// The network it is connected to, by the name at the site, not in the descriptor.
    pub network: String,
}

/// Options that vCenter would refuse, with all reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the properties cannot be set: {}", list(problems))]
pub struct RefusedProperties {
    /// All that is wrong; never empty.
    pub problems: Vec<Problem>,
}

/// Makes the environment document of a VM.
///
/// `options` are what a person filled in, by environment key. Properties that
/// are not filled in have their defaults. `adapters` are in the order of the
/// VM's network adapters.
///
/// # Errors
/// Options for properties that do not exist or are not for people to set,
/// values that do not suit their type or qualifiers, properties that need a
/// value and have none, texts that XML cannot hold.
pub fn document(
    product: &Product,
    options: &BTreeMap<String, String>,
    platform: &Platform,
    adapters: &[Adapter],
) -> Result<String, RefusedProperties> {
    let values = values(product, options)?;
    let mut attributes = vec![
        ("xmlns", ENVIRONMENT),
        ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"),
        ("xmlns:oe", ENVIRONMENT),
        ("xmlns:ve", VMWARE),
        ("oe:id", ""),
    ];
    attributes.extend(platform.vcenter_id.iter().map(|id| ("ve:vCenterId", id.as_str())));

    let mut xml = Xml::new();
    xml.element("Environment", &attributes, |xml| {
        xml.element("PlatformSection", &[], |xml| {
            xml.text("Kind", &platform.kind);
            xml.text("Version", &platform.version);
            xml.text("Vendor", &platform.vendor);
            xml.text("Locale", &platform.locale);
        });
        xml.element("PropertySection", &[], |xml| {
            for (key, value) in &values {
                xml.empty("Property", &[("oe:key", key), ("oe:value", value)]);
            }
        });
        xml.element("ve:EthernetAdapterSection", &[], |xml| {
            for (number, adapter) in adapters.iter().enumerate() {
                let unit = (FIRST_ADAPTER_UNIT + number).to_string();
                let attributes =
                    [("ve:mac", adapter.mac.as_str()), ("ve:network", &adapter.network), ("ve:unitNumber", &unit)];
                xml.empty("ve:Adapter", &attributes);
            }
        });
    });
    xml.finish().map_err(|forbidden| RefusedProperties {
        problems: vec![Problem { subject: "a value".into(), reason: forbidden.to_string() }],
    })
}

/// The values that a guest gets, by environment key, in the order of the form.
///
/// # Errors
/// As [`document`].
pub fn values(
    product: &Product,
    options: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, RefusedProperties> {
    let mut findings = Findings::default();
    let properties: Vec<_> =
        product.properties().map(|property| (product.environment_key(property), property)).collect();
    for key in options.keys() {
        match properties.iter().find(|(known, _)| known == key) {
            None => findings.add(format!("property {key:?}"), "does not exist"),
            Some((_, property)) if !property.user_configurable => {
                findings.add(format!("property {key:?}"), "is a constant; leave it out");
            }
            Some(_) => {}
        }
    }
    let mut values = Vec::new();
    for (key, property) in properties {
        let given = options.get(&key).or(property.default.as_ref()).map(String::as_str).unwrap_or_default();
        match property.admit(given) {
            Ok(value) => values.push((key, value)),
            Err(unsuitable) if given.is_empty() => {
                findings.add(format!("property {key:?}"), format!("has no value; it {unsuitable}"));
            }
            // The value itself is not shown: it may be a secret.
            Err(unsuitable) => findings.add(format!("property {key:?}"), unsuitable.to_string()),
        }
    }
    match findings.into_vec() {
        problems if problems.is_empty() => Ok(values),
        problems => Err(RefusedProperties { problems }),
    }
}
