//! The OVF environment of a VM, made from the OVA's ProductSection by vCenter's rules. Properties that vCenter would
//! refuse at import are refused here. Properties that it would refuse at power-on are reported.

use std::collections::BTreeMap;
use std::path::Path;

use contract::image::{self, ImageFacts};
use contract::properties::FormProperty;
use ova::ovf::environment::{self, Adapter, Platform, Properties};
use ova::ovf::{Product, Property, PropertyGroup, PropertyType, Qualifier};

use super::{Source, records};

/// Name of the lab's network in the environment.
const NETWORK: &str = "Lab Network";

/// The properties of an imported VM.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedProperties {
    /// The document for the guest.
    pub document: String,
    /// Labels of properties that need a value and have none. vCenter would not power the VM on.
    pub unconfigured: Vec<String>,
}

/// Imports these properties for a VM with this MAC address. If vCenter would refuse them, it fails and creates nothing.
pub fn import(source: &Source, properties: &BTreeMap<String, String>, mac: &str) -> anyhow::Result<ImportedProperties> {
    let properties = Properties::import(&product(source)?, properties)?;
    let platform = Platform::vsphere("8.0.3", "vm-1");
    let adapters = [Adapter { mac: mac.to_owned(), network: NETWORK.to_owned() }];
    let document = environment::document(&properties, &platform, &adapters)?;
    Ok(ImportedProperties { document, unconfigured: properties.unconfigured })
}

/// Whether the form has a property.
pub fn asks_for(source: &Source, key: &str) -> anyhow::Result<bool> {
    let asked = product(source)?.groups.into_iter().flat_map(|group| group.properties);
    Ok(asked.into_iter().any(|property| property.key == key))
}

fn product(source: &Source) -> anyhow::Result<Product> {
    match source {
        Source::Ova { unpacked } | Source::Disk { unpacked, .. } => Ok(unpacked.descriptor()?.product),
        Source::Tree { tree } => form_of(tree),
    }
}

/// The form of an OVA that would be made from this root tree.
pub(super) fn form_of(tree: &Path) -> anyhow::Result<Product> {
    let image: ImageFacts = records::load(&tree.join(image::PATH.trim_start_matches('/')))?;
    let minors: Vec<String> = image.kubernetes.into_iter().map(|release| release.minor).collect();
    let field = |property: FormProperty| Property {
        key: property.key.to_owned(),
        kind: PropertyType::from_name(property.ovf_type),
        qualifiers: property.qualifiers.as_deref().map(Qualifier::parse_list).unwrap_or_default(),
        default: property.default,
        user_configurable: true,
        password: property.password,
        label: property.label,
        description: property.description,
    };
    let properties = contract::properties::form(&image.roles, &minors).into_iter().map(field).collect();
    Ok(Product { groups: vec![PropertyGroup { category: None, properties }], ..Product::default() })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use contract::image::KubernetesRelease;
    use contract::properties::{ADDRESS, NODE_NAME, TIMEOUT_FACTOR, options_json};
    use contract::role::{Role, Roles};
    use tempfile::TempDir;

    use super::super::{NewVm, fixture};
    use super::*;

    /// A root tree of an image with these roles, as far as the form needs it.
    fn tree(roles: Roles) -> (TempDir, Source) {
        let directory = tempfile::tempdir().unwrap();
        let source = tree_in(directory.path(), roles);
        (directory, source)
    }

    /// As `tree`, in a directory.
    pub(crate) fn tree_in(tree: &Path, roles: Roles) -> Source {
        let file = tree.join(image::PATH.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let facts = ImageFacts {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            build: "b".to_owned(),
            roles,
            publisher: None,
            upgrades_from: None,
            kubernetes: vec![KubernetesRelease { minor: "1.36".to_owned(), version: "1.36.2".to_owned() }],
            etcd: String::new(),
            coredns: String::new(),
            pause: String::new(),
            programs: Vec::new(),
        };
        records::save(&file, &facts).unwrap();
        Source::Tree { tree: tree.to_owned() }
    }

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn vms_with_an_unchanged_form_power_on() {
        let one = Role::ALL.map(Roles::from);
        for roles in one.into_iter().chain(Roles::new(Role::ALL.to_vec())) {
            let (_directory, source) = tree(roles.clone());
            let untouched = import(&source, &BTreeMap::new(), "m").unwrap();
            assert_eq!(untouched.unconfigured, [""; 0], "{roles:?}");
            let file = options_json(&roles, &["1.36".to_owned()], &[]);
            let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap().to_owned();
            let rows = file["PropertyMapping"].as_array().unwrap().iter();
            let options = rows.map(|row| (text(row, "Key"), text(row, "Value"))).collect();
            assert_eq!(import(&source, &options, "m").unwrap(), untouched);
        }
    }

    #[test]
    fn all_errors_of_properties_are_reported_at_once() {
        let (_directory, source) = tree(Role::ControlPlane.into());
        let wrong = options(&[
            ("nodename", "cp1"),
            (NODE_NAME, &"x".repeat(64)),
            (ADDRESS, "192.168.77.eleven/24"),
            (TIMEOUT_FACTOR, "much"),
        ]);
        let refused = import(&source, &wrong, "m").unwrap_err().to_string();
        for part in [
            "vCenter would refuse the properties: ",
            "property \"nodename\" does not exist",
            "property \"node-name\" must have at most 63 characters",
            "property \"address\" must have at most 18 characters",
            "property \"timeout-factor\" must be a whole number from 0 to 255",
        ] {
            assert!(refused.contains(part), "{part} is not in {refused}");
        }
    }

    fn vm(properties: BTreeMap<String, String>) -> NewVm {
        NewVm { properties, ..fixture::vm("cp1", None) }
    }

    #[test]
    fn a_vm_with_refused_properties_is_not_created() {
        let (directory, source) = tree(Role::ControlPlane.into());
        let lab = fixture::lab(directory.path(), 1, source);
        let error = format!("{:#}", lab.import(&vm(options(&[(TIMEOUT_FACTOR, "256")]))).unwrap_err());
        assert!(error.starts_with("importing cp1: vCenter would refuse the properties: property"), "{error}");
        assert_eq!(lab.vms().unwrap(), [""; 0]);
    }

    #[test]
    fn a_vm_without_a_required_value_stays_off() {
        let (directory, source) = tree(Role::ControlPlane.into());
        let lab = fixture::lab(directory.path(), 1, source);
        // No program can write its CD-ROM, which is the step after its record.
        lab.import(&vm(BTreeMap::new())).unwrap_err();
        let mut record = lab.directory.load_vm("cp1").unwrap();
        record.unconfigured = vec!["Node name".to_owned(), "Deployment secret".to_owned()];
        lab.directory.save_vm(&record).unwrap();
        let error = format!("{:#}", lab.power_on("cp1").unwrap_err());
        let why = "property 'Node name', property 'Deployment secret' must be configured for the VM to power on";
        assert_eq!(error, format!("powering cp1 on: vCenter would refuse it: {why}"));
        assert!(lab.console_text("cp1").is_err(), "it was powered on");
    }
}
