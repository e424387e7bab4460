//! The OVF environment: the document from which a guest reads its properties, as vCenter makes it.
//!
//! Source: DSP0243 1.1 §11 (environment document), §9.5.1 (keys), and documents of vCenter for VMware's own parts
//! (`ve:`). The rules for values are vCenter's, from its web services API.
//!
//! - An empty value means the default: `VAppPropertyInfo`.
//! - At import: `InvalidPropertyValue` and `NotUserConfigurableProperty`.
//! - At power-on: `UnconfiguredPropertyValue`.
//!
//! vCenter reports the first problem, this module all of them.

use std::collections::BTreeMap;

use super::check::{Findings, Problem, list};
use super::devices::FIRST_ADAPTER_UNIT;
use super::model::Product;
use super::xml::Xml;

const ENVIRONMENT: &str = "http://schemas.dmtf.org/ovf/environment/1";
const VMWARE: &str = "http://www.vmware.com/schema/ovfenv";

/// The description of the platform and of the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The hypervisor, on vSphere `VMware ESXi`.
    pub kind: String,
    /// Its version, such as `8.0.3`.
    pub version: String,
    /// The hypervisor's vendor, on vSphere `VMware, Inc.`
    pub vendor: String,
    /// Language, such as `en`.
    pub locale: String,
    /// The VM's identifier in vCenter, such as `vm-1234`. `None` without vCenter.
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
    /// The network that it is connected to, by its name at the site.
    pub network: String,
}

/// Options that vCenter would refuse, with all problems.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vCenter would refuse the properties: {}", list(problems))]
pub struct RefusedProperties {
    /// All problems; never empty.
    pub problems: Vec<Problem>,
}

/// The reason why vCenter would not power a VM on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} must be configured for the VM to power on", quoted(labels))]
pub struct UnconfiguredProperties {
    /// As [`Properties::unconfigured`]; never empty.
    pub labels: Vec<String>,
}

fn quoted(labels: &[String]) -> String {
    labels.iter().map(|label| format!("property '{label}'")).collect::<Vec<_>>().join(", ")
}

/// The properties of an imported VM as vCenter keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The guest's values, by environment key, in the order of the form.
    pub values: Vec<(String, String)>,
    /// Labels of the properties without a value that allow no empty value, by type or qualifiers. The list has to be
    /// empty for vCenter to power the VM on.
    pub unconfigured: Vec<String>,
}

impl Properties {
    /// Imports a VM. `options` are the operator's or a tool's values, by environment key. A property with no value or
    /// an empty one gets its default.
    ///
    /// # Errors
    /// Options for properties that do not exist or are not user configurable, and values that do not suit their type or
    /// qualifiers.
    pub fn import(product: &Product, options: &BTreeMap<String, String>) -> Result<Properties, RefusedProperties> {
        let mut findings = Findings::default();
        let properties: Vec<_> =
            product.properties().map(|property| (product.environment_key(property), property)).collect();
        for key in options.keys() {
            match properties.iter().find(|(known, _)| known == key) {
                None => findings.add(format!("property {key:?}"), "does not exist"),
                Some((_, property)) if !property.user_configurable => {
                    findings.add(format!("property {key:?}"), "is not user configurable; leave it out");
                }
                Some(_) => {}
            }
        }
        let (mut values, mut unconfigured) = (Vec::new(), Vec::new());
        for (key, property) in properties {
            let given = options.get(&key).filter(|given| !given.is_empty());
            let given = given.or(property.default.as_ref()).map(String::as_str).unwrap_or_default();
            match property.admit(given) {
                Ok(value) => values.push((key, value)),
                Err(_) if given.is_empty() => {
                    unconfigured.push(property.label.clone());
                    values.push((key, String::new()));
                }
                // The value itself is not shown: it may be a secret.
                Err(unsuitable) => findings.add(format!("property {key:?}"), unsuitable.to_string()),
            }
        }
        match findings.into_vec() {
            problems if problems.is_empty() => Ok(Properties { values, unconfigured }),
            problems => Err(RefusedProperties { problems }),
        }
    }
}

/// Makes the environment document of a VM. `adapters` have the order of the VM's network adapters. Fails if XML does
/// not allow a character.
pub fn document(
    properties: &Properties,
    platform: &Platform,
    adapters: &[Adapter],
) -> Result<String, RefusedProperties> {
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
            for (key, value) in &properties.values {
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
