//! The OVF environment: the document by which a guest learns its properties, as vCenter makes it.
//!
//! Source: DSP0243 1.1 §11 (environment document), §9.5.1 (keys), and documents
//! made by vCenter for what is VMware's own (`ve:`). The rules for values are
//! vCenter's, as its web services API documents them: `VAppPropertyInfo` (an
//! empty value stands for the default), `InvalidPropertyValue` and
//! `NotUserConfigurableProperty` at import, `UnconfiguredPropertyValue` at
//! power-on. Where it tells the first refusal, all are told here.

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
#[error("vCenter would refuse the properties: {}", list(problems))]
pub struct RefusedProperties {
    /// All that is wrong; never empty.
    pub problems: Vec<Problem>,
}

/// Why vCenter would not power a VM on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} must be configured for the VM to power on", quoted(labels))]
pub struct UnconfiguredProperties {
    /// As [`Properties::unconfigured`]; never empty.
    pub labels: Vec<String>,
}

fn quoted(labels: &[String]) -> String {
    labels.iter().map(|label| format!("property '{label}'")).collect::<Vec<_>>().join(", ")
}

/// The properties of a VM as vCenter keeps them once it has imported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// What a guest gets, by environment key, in the order of the form.
    pub values: Vec<(String, String)>,
    /// Labels of those that have no value and whose type or qualifiers take none that is empty. vCenter powers the VM
    /// on when there is none of them.
    pub unconfigured: Vec<String>,
}

impl Properties {
    /// Imports a VM. `options` are what a person or a tool filled in, by environment key. A property that is not
    /// filled in, or with nothing, has its default.
    ///
    /// # Errors
    /// Options for properties that do not exist or are not for people to set, values that do not suit their type or
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

/// Makes the environment document of a VM. `adapters` are in the order of the
/// VM's network adapters.
///
/// # Errors
/// Texts that XML cannot hold.
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
