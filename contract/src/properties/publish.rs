//! The table as others need it: the OVF form, the options file of import tools,
//! the reference in the documentation. Knows nothing of XML.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::{Kind, Need, table};
use crate::minor;
use crate::role::Role;

/// One property of an OVF ProductSection, in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormProperty {
    /// `ovf:key`.
    pub key: &'static str,
    /// Text of the `Category` element; properties of one category follow each other.
    pub category: &'static str,
    /// Text of the `Label` element.
    pub label: &'static str,
    /// Text of the `Description` element.
    pub description: &'static str,
    /// `ovf:type`.
    pub ovf_type: &'static str,
    /// `ovf:qualifiers`.
    pub qualifiers: Option<String>,
    /// `ovf:password`.
    pub password: bool,
    /// Whether a value must be given: the form's fields that have no default and cannot stay empty.
    pub required: bool,
    /// `ovf:value`.
    pub default: Option<String>,
}

/// The properties for an image of this role that carries these Kubernetes minors, such as
/// `1.36`; the newest is the default. All are user-configurable strings and numbers;
/// the ProductSection must not have a class.
pub fn form(role: Role, kubernetes_minors: &[String]) -> Vec<FormProperty> {
    table()
        .iter()
        .map(|property| FormProperty {
            key: property.key,
            category: property.category.heading(),
            label: property.label,
            description: property.description,
            ovf_type: property.kind.ovf_type(),
            qualifiers: property.kind.ovf_qualifiers(property.required(role), kubernetes_minors),
            password: property.secret(),
            required: property.required(role),
            default: match property.kind {
                Kind::KubernetesMinor => minor::newest(kubernetes_minors.iter().map(String::as_str)).map(str::to_owned),
                _ => property.default(role).map(str::to_owned),
            },
        })
        .collect()
}

/// An options file as `govc import.spec` writes it and `govc import.ova
/// -options` reads it: every property with its default, `networks` (the OVF's
/// network names) still to be mapped, powered off after the import.
pub fn options_json(role: Role, kubernetes_minors: &[String], networks: &[&str]) -> Json {
    let properties: Vec<Json> = form(role, kubernetes_minors)
        .into_iter()
        .map(|property| json!({ "Key": property.key, "Value": property.default.unwrap_or_default() }))
        .collect();
    let networks: Vec<Json> = networks.iter().map(|name| json!({ "Name": name, "Network": "" })).collect();
    json!({
        "DiskProvisioning": "thin",
        "IPAllocationPolicy": "fixedPolicy",
        "IPProtocol": "IPv4",
        "PropertyMapping": properties,
        "NetworkMapping": networks,
        "MarkAsTemplate": false,
        "PowerOn": false,
        "InjectOvfEnv": false,
        "WaitForIP": false,
        "Name": null,
    })
}

/// The table for the documentation, in Markdown.
pub fn reference_markdown() -> String {
    let mut text = String::new();
    let mut category = None;
    for property in table() {
        if category != Some(property.category) {
            category = Some(property.category);
            let _ = writeln!(
                text,
                "{}**{}**\n\n| Property | Meaning | Form | Default |\n|---|---|---|---|",
                if text.is_empty() { "" } else { "\n" },
                property.category.heading()
            );
        }
        let mut form = property.kind.documentation();
        if let Some(example) = property.example {
            let _ = write!(form, "; e.g. `{example}`");
        }
        let default = match (property.kind, property.need(Role::ControlPlane)) {
            (Kind::KubernetesMinor, _) => "the newest in the image".to_owned(),
            (_, Need::Default(default)) => format!("`{default}`"),
            (_, Need::Required) => "**required**".to_owned(),
            (_, Need::Optional) => "none".to_owned(),
        };
        let _ = writeln!(
            text,
            "| `{}` | {}: {} | {} | {default} |",
            property.key,
            property.label,
            property.description.replace('|', "\\|"),
            form.replace('|', "\\|"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minors() -> Vec<String> {
        vec!["1.36".into(), "1.35".into()]
    }

    #[test]
    fn form_has_each_property_once_and_no_minimum_of_zero() {
        let form = form(Role::ControlPlane, &minors());
        assert_eq!(form.len(), table().len());
        for property in &form {
            let qualifiers = property.qualifiers.as_deref().unwrap_or_default();
            assert!(!qualifiers.contains("MinLen(0)"), "{}: {qualifiers}", property.key);
            assert!(
                !property.default.as_ref().is_some_and(|default| property.password && !default.is_empty()),
                "{} has a built-in secret",
                property.key
            );
        }
        let version = form.iter().find(|property| property.key == "kubernetes-version").unwrap();
        assert_eq!(version.qualifiers.as_deref(), Some(r#"ValueMap{"1.36","1.35"}"#));
        assert_eq!(version.default.as_deref(), Some("1.36"));
        let secret = form.iter().find(|property| property.key == "deployment-secret").unwrap();
        assert!(secret.password && secret.required && secret.qualifiers.as_deref() == Some("MinLen(1),MaxLen(1024)"));
    }

    #[test]
    fn options_file_lists_properties_in_order() {
        let options = options_json(Role::ControlPlane, &minors(), &["VM Network"]);
        let keys: Vec<&str> =
            options["PropertyMapping"].as_array().unwrap().iter().map(|row| row["Key"].as_str().unwrap()).collect();
        assert_eq!(keys, table().iter().map(|property| property.key).collect::<Vec<_>>());
        assert_eq!(options["NetworkMapping"][0]["Name"], "VM Network");
    }

    #[test]
    fn reference_is_as_reviewed() {
        insta::assert_snapshot!(reference_markdown());
    }
}
