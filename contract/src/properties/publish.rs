//! The table as others need it: the OVF form, the options file of import tools,
//! the reference in the documentation. Knows nothing of XML.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::{Kind, Need, Property, table};
use crate::minor;
use crate::role::Role;

/// One property of an OVF ProductSection, in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormProperty {
    /// `ovf:key`.
    pub key: &'static str,
    /// Text of the `Category` element; properties of one category follow each other.
    pub category: &'static str,
    /// Text of the `Label` element. It says what is required: vCenter's form marks nothing, because an empty value is
    /// right in a VM that takes over a data disk.
    pub label: String,
    /// Text of the `Description` element.
    pub description: String,
    /// `ovf:type`.
    pub ovf_type: &'static str,
    /// `ovf:qualifiers`.
    pub qualifiers: Option<String>,
    /// `ovf:password`.
    pub password: bool,
    /// `ovf:value`.
    pub default: Option<String>,
}

/// What the label of a required property ends with.
const REQUIRED: &str = " (required for a new node)";
/// What its description ends with.
const UNLESS: &str = " Leave it empty only in a VM that takes over a node's data disk: the configuration is there.";

/// The properties for an image of this role that carries these Kubernetes minors, such as
/// `1.36`; the newest is the default. All are user-configurable strings and numbers;
/// the ProductSection must not have a class.
///
/// The form may stay as it comes: vCenter takes it with every property as it is here, and powers the VM on.
pub fn form(role: Role, kubernetes_minors: &[String]) -> Vec<FormProperty> {
    let publish = |property: &Property| {
        let required = property.required(role);
        let text = |text: &str, when_required: &str| [text, if required { when_required } else { "" }].concat();
        FormProperty {
            key: property.key,
            category: property.category.heading(),
            label: text(property.label, REQUIRED),
            description: text(property.description, UNLESS),
            ovf_type: property.kind.ovf_type(),
            qualifiers: property.kind.ovf_qualifiers(kubernetes_minors),
            password: property.secret(),
            default: match property.kind {
                Kind::KubernetesMinor => minor::newest(kubernetes_minors.iter().map(String::as_str)).map(str::to_owned),
                _ => property.default(role).map(str::to_owned),
            },
        }
    };
    table().iter().map(publish).collect()
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
    fn form_has_each_property_once_and_none_needs_a_value() {
        let form = form(Role::ControlPlane, &minors());
        assert_eq!(form.len(), table().len());
        for property in &form {
            let qualifiers = property.qualifiers.as_deref().unwrap_or_default();
            assert!(!qualifiers.contains("MinLen"), "{}: {qualifiers}", property.key);
            let admits_nothing = property.ovf_type == "string" && !qualifiers.contains("ValueMap");
            assert!(admits_nothing || property.default.is_some(), "{} must be filled in", property.key);
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
        assert!(secret.password && secret.qualifiers.as_deref() == Some("MaxLen(1024)"));
    }

    #[test]
    fn the_form_says_what_a_new_node_needs() {
        for role in Role::ALL {
            for (property, shown) in table().iter().zip(form(role, &minors())) {
                let says = [shown.label.ends_with(REQUIRED), shown.description.ends_with(UNLESS)];
                assert_eq!(says, [property.required(role); 2], "{} in {role:?}", property.key);
                assert!(shown.label.len() <= 60 && shown.description.len() <= 400, "{} is too long", property.key);
            }
        }
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
