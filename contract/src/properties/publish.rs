//! The table as others need it: the OVF form, the options file of import tools,
//! the reference in the documentation. Knows nothing of XML.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::{Kind, Need, Property, table};
use crate::minor;
use crate::role::{Role, Roles};

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

/// The end of a required property's label.
const REQUIRED: &str = " (required for a new node)";
/// The end of its description.
const UNLESS: &str = " Leave it empty only in a VM that takes over a node's data disk with the configuration.";

/// The properties for an image with these roles that carries these minor versions of Kubernetes, such as
/// `1.36`; the newest is the default. All are user-configurable strings and numbers;
/// the ProductSection must not have a class.
///
/// The form may stay as it comes: vCenter takes it with every property as it is here, and powers the VM on.
pub fn form(roles: &Roles, kubernetes_minors: &[String]) -> Vec<FormProperty> {
    form_of(table(), roles, kubernetes_minors)
}

fn form_of(table: &[Property], roles: &Roles, kubernetes_minors: &[String]) -> Vec<FormProperty> {
    let asked = table.iter().filter(|property| property.asked_for(roles));
    let publish = |property: &Property| {
        let (who, when) = needed_by(property, roles);
        FormProperty {
            key: property.key,
            category: property.category.heading(),
            label: [property.label, &who].concat(),
            description: [property.description, &when].concat(),
            ovf_type: property.kind.ovf_type(),
            qualifiers: property.kind.ovf_qualifiers(roles, kubernetes_minors),
            password: property.scrubbed(),
            default: match property.kind {
                Kind::KubernetesMinor => minor::newest(kubernetes_minors.iter().map(String::as_str)).map(str::to_owned),
                Kind::Role => Some(roles.first().to_string()),
                _ => default(property, roles).map(str::to_owned),
            },
        }
    };
    asked.map(publish).collect()
}

/// The ends of label and description: the roles that need the property, and the roles that use it if not all do.
fn needed_by(property: &Property, roles: &Roles) -> (String, String) {
    let names = |of: &dyn Fn(Role) -> bool| roles.iter().filter(|role| of(*role)).map(Role::name).collect::<Vec<_>>();
    let (all, using) = (names(&|_| true), names(&|role| property.need(role).is_some()));
    let requiring = names(&|role| property.required(role));
    let label = match requiring.as_slice() {
        [] if using == all => String::new(),
        [] => format!(" ({} only)", using.join(", ")),
        requiring if requiring == all => REQUIRED.to_owned(),
        requiring => format!(" (required for {})", requiring.join(", ")),
    };
    let only = if using == all { String::new() } else { format!(" Only {} uses it.", using.join(" or ")) };
    (label, only + if requiring.is_empty() { "" } else { UNLESS })
}

/// The default of all roles that use the property. Where they differ the form has none, and each node takes its own.
fn default(property: &Property, roles: &Roles) -> Option<&'static str> {
    let mut defaults = roles.iter().filter(|role| property.need(*role).is_some()).map(|role| property.default(role));
    let first = defaults.next()?;
    first.filter(|_| defaults.all(|other| other == first))
}

/// An options file as `govc import.spec` writes it and `govc import.ova
/// -options` reads it. Every property has its default. The operator maps
/// `networks`, the OVF's network names. The VM stays off after the import.
pub fn options_json(roles: &Roles, kubernetes_minors: &[String], networks: &[&str]) -> Json {
    let properties: Vec<Json> = form(roles, kubernetes_minors)
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
        let default = match property.kind {
            Kind::KubernetesMinor => "the newest in the image".to_owned(),
            Kind::Role => "the image's first".to_owned(),
            _ => without_value(property),
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

/// The result of an empty value: for each role, if they differ.
fn without_value(property: &Property) -> String {
    let words = |role: Role| match property.need(role) {
        Some(Need::Default(default)) => format!("`{default}`"),
        Some(Need::Required) => "**required**".to_owned(),
        Some(Need::Optional) => "none".to_owned(),
        None => "not used".to_owned(),
    };
    let [first, others @ ..] = Role::ALL.map(|role| (role, words(role)));
    match others.iter().all(|(_, words)| *words == first.1) {
        true => first.1,
        false => [&[first], others.as_slice()]
            .concat()
            .iter()
            .map(|(role, words)| format!("{role}: {words}"))
            .collect::<Vec<_>>()
            .join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        CLUSTER_NAME, CONSOLE_PASSWORD_HASH, DEPLOYMENT_SECRET, HTTP_PROXY, HTTPS_PROXY, NODE_NAME, POD_CIDR, ROLE,
        SNAPSHOT_TARGET, find,
    };
    use super::*;

    fn minors() -> Vec<String> {
        vec!["1.36".into(), "1.35".into()]
    }

    #[test]
    fn the_form_has_each_property_once() {
        for roles in [Roles::from(Role::ControlPlane), several()] {
            form_needs_no_value(&form(&roles, &minors()));
        }
        let form = form(&Role::ControlPlane.into(), &minors());
        let used =
            table().iter().filter(|property| property.key != ROLE && property.need(Role::ControlPlane).is_some());
        let asked = used.map(|property| property.key);
        assert_eq!(form.iter().map(|property| property.key).collect::<Vec<_>>(), asked.collect::<Vec<_>>());
        let version = form.iter().find(|property| property.key == "kubernetes-version").unwrap();
        assert_eq!(version.qualifiers.as_deref(), Some(r#"ValueMap{"1.36","1.35"}"#));
        assert_eq!(version.default.as_deref(), Some("1.36"));
        // vCenter shows all other values to its readers.
        let hidden: Vec<&str> = form.iter().filter(|property| property.password).map(|property| property.key).collect();
        assert_eq!(hidden, [DEPLOYMENT_SECRET, CONSOLE_PASSWORD_HASH, HTTP_PROXY, HTTPS_PROXY, SNAPSHOT_TARGET]);
        let secret = form.iter().find(|property| property.key == "deployment-secret").unwrap();
        assert!(secret.password && secret.qualifiers.as_deref() == Some("MaxLen(1024)"));
    }

    fn form_needs_no_value(form: &[FormProperty]) {
        for property in form {
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
    }

    #[test]
    fn the_form_says_what_a_new_node_needs() {
        for role in Role::ALL {
            for shown in form(&role.into(), &minors()) {
                let property = find(shown.key).unwrap();
                let says = [shown.label.ends_with(REQUIRED), shown.description.ends_with(UNLESS)];
                assert_eq!(says, [property.required(role); 2], "{} in {role:?}", property.key);
                assert!(shown.label.len() <= 60 && shown.description.len() <= 400, "{} is too long", property.key);
            }
        }
    }

    fn several() -> Roles {
        Roles::new(vec![Role::TenantControlPlane, Role::ControlPlane]).unwrap()
    }

    #[test]
    fn images_with_several_roles_ask_for_the_role() {
        let mut rows = table().to_vec();
        let row = rows.iter_mut().find(|row| row.key == SNAPSHOT_TARGET).unwrap();
        *row = row.clone().need_in(Role::TenantControlPlane, None);
        let form = form_of(&rows, &several(), &minors());
        let shown = |key: &str| form.iter().find(|property| property.key == key).unwrap();
        let role = shown(ROLE);
        assert_eq!(role.qualifiers.as_deref(), Some(r#"ValueMap{"tenant-control-plane","control-plane"}"#));
        assert_eq!(role.default.as_deref(), Some("tenant-control-plane"));
        assert!(shown(NODE_NAME).label.ends_with(REQUIRED));
        assert_eq!(shown(CLUSTER_NAME).label, "Cluster name (required for tenant-control-plane)");
        assert_eq!(shown(CLUSTER_NAME).default, None, "the roles differ");
        assert_eq!(shown(SNAPSHOT_TARGET).label, "Snapshot target (control-plane only)");
        assert!(shown(SNAPSHOT_TARGET).description.ends_with(" Only control-plane uses it."));
        assert_eq!(shown(POD_CIDR).default.as_deref(), Some("10.244.0.0/16"));
        for property in &form {
            assert!(property.label.len() <= 80 && property.description.len() <= 500, "{} is too long", property.key);
        }
        let tenants = form_of(&rows, &Role::TenantControlPlane.into(), &minors());
        assert!(tenants.iter().all(|property| ![ROLE, SNAPSHOT_TARGET].contains(&property.key)));
    }

    #[test]
    fn options_file_lists_properties_in_order() {
        let options = options_json(&several(), &minors(), &["VM Network"]);
        let keys: Vec<&str> =
            options["PropertyMapping"].as_array().unwrap().iter().map(|row| row["Key"].as_str().unwrap()).collect();
        let asked = table().iter().filter(|property| property.asked_for(&several()));
        assert_eq!(keys, asked.map(|property| property.key).collect::<Vec<_>>());
        assert_eq!(options["NetworkMapping"][0]["Name"], "VM Network");
    }

    #[test]
    fn reference_is_as_reviewed() {
        insta::assert_snapshot!(reference_markdown());
    }
}
