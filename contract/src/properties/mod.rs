//! The OVF properties: one typed table that makes the OVF's ProductSection, the
//! options file of import tools, the reference in the documentation, and the
//! parser. They cannot drift apart.
//!
//! This module knows single values only. [`crate::form`] checks them against
//! each other.

mod kind;
pub mod parse;
mod publish;
mod table;
mod value;

pub use kind::Kind;
pub use publish::{FormProperty, form, options_json, reference_markdown};
pub use table::*;
pub use value::{AddressRange, AddressSource, ControlNode, Effect, Label, Period, Problem, Route, Taint, Value};

use crate::finding::Findings;
use crate::role::{Role, Roles};

/// A group of properties in the import form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Settings that differ from node to node.
    Node,
    /// Settings that all nodes of a cluster share.
    Cluster,
    /// How people get in.
    Access,
    /// Site services: proxy, trust, registry.
    Site,
    /// Settings that rarely change.
    Advanced,
}

impl Category {
    /// The heading in the form.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Node => "1. This node",
            Self::Cluster => "2. Cluster (the same on every node)",
            Self::Access => "3. Access",
            Self::Site => "4. Site services",
            Self::Advanced => "5. Advanced",
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The OVF key: lower-case words with dashes. Dots separate classes in the
    /// environment, so a key has none.
    pub key: &'static str,
    /// The field's label in the form.
    pub label: &'static str,
    /// The text below the field, in full sentences.
    pub description: &'static str,
    /// The group it is shown in.
    pub category: Category,
    /// The form of its value.
    pub kind: Kind,
    /// A value as it could be given. Secrets have none: an operator would use it.
    pub example: Option<&'static str>,
    /// The rule for a missing value, by role; none in a role that does not use it.
    needs: [Option<Need>; Role::ALL.len()],
    /// Whether it may be changed on a node whose cluster has formed.
    pub changeable: bool,
    /// The fields of a `TenantCluster`'s spec that its control-plane nodes have the value from, such as
    /// `site.ntpServers`.
    pub spec: &'static [&'static str],
}

/// The rule for a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The appliance does without.
    Optional,
    /// The appliance cannot do without one.
    Required,
    /// It takes this one.
    Default(&'static str),
}

impl Property {
    /// The same row with another need in one role; none where that role does not use it.
    pub const fn need_in(mut self, role: Role, need: Option<Need>) -> Self {
        self.needs[role as usize] = need;
        self
    }

    /// The rule for a missing value in this role; none if the role does not use the property.
    pub fn need(&self, role: Role) -> Option<Need> {
        self.needs[role as usize]
    }

    /// Whether the form of an image with these roles asks for it: one of them uses it. The role itself is no choice if
    /// there is a single one.
    pub fn asked_for(&self, roles: &Roles) -> bool {
        match self.kind {
            Kind::Role => roles.only().is_none(),
            _ => roles.iter().any(|role| self.need(role).is_some()),
        }
    }

    /// The value in this role when none is given.
    pub fn default(&self, role: Role) -> Option<&'static str> {
        match self.need(role) {
            Some(Need::Default(value)) => Some(value),
            Some(Need::Optional | Need::Required) | None => None,
        }
    }

    /// Whether a VM of this role cannot do without a value.
    pub fn required(&self, role: Role) -> bool {
        self.need(role) == Some(Need::Required)
    }

    /// Whether every value is a secret, which is never shown.
    pub fn secret(&self) -> bool {
        self.kind.is_secret()
    }

    /// Whether the value is, or may contain, a secret: it is hidden in the form, and removed from guestinfo once it was read.
    pub fn scrubbed(&self) -> bool {
        self.kind.may_hold_secret()
    }

    /// Whether `value` may be, or contain, a secret. An address is one with a
    /// user's name and password in it only.
    pub fn betrays(&self, value: &str) -> bool {
        self.secret() || (self.scrubbed() && value.contains('@'))
    }

    /// Reads a value. Secrets are taken as they are; around all else white space is ignored.
    ///
    /// # Errors
    /// A finding for each thing that is wrong with it, all named after this property.
    pub fn parse(&self, text: &str) -> Result<Value, Findings> {
        let text = if matches!(self.kind, Kind::Secret) { text } else { text.trim() };
        self.kind.parse(text).map_err(|problems| {
            let mut findings = Findings::default();
            for problem in problems {
                findings.push(problem.code.finding(self.key, problem.seen, problem.action));
            }
            findings
        })
    }
}

/// All properties, in the order of the form.
pub fn table() -> &'static [Property] {
    table::TABLE
}

/// The property with this key.
pub fn find(key: &str) -> Option<&'static Property> {
    table().iter().find(|property| property.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_plain_words_without_dots() {
        for (index, property) in table().iter().enumerate() {
            assert!(property.key.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", property.key);
            assert!(table()[..index].iter().all(|other| other.key != property.key), "{} is there twice", property.key);
        }
    }

    #[test]
    fn properties_of_a_category_follow_each_other() {
        let mut seen = Vec::new();
        for property in table() {
            if seen.last() != Some(&property.category) {
                assert!(!seen.contains(&property.category), "{} is apart from its category", property.key);
                seen.push(property.category);
            }
        }
    }

    #[test]
    fn defaults_are_valid() {
        for (property, role) in table().iter().flat_map(|property| Role::ALL.map(|role| (property, role))) {
            if let Some(default) = property.default(role) {
                property.parse(default).expect(property.key);
            }
        }
    }

    #[test]
    fn tenant_clusters_need_a_name_and_an_address() {
        let differ: Vec<&str> = table()
            .iter()
            .filter(|property| property.need(Role::ControlPlane) != property.need(Role::TenantControlPlane))
            .map(|property| property.key)
            .collect();
        assert_eq!(differ, [CLUSTER_NAME, API_VIP, CLUSTER_DNS, CLUSTER_METRICS, LOCAL_VOLUMES, SERVICE_VIPS]);
        assert!(differ[..2].iter().all(|key| find(key).unwrap().required(Role::TenantControlPlane)));
        let add_ons: Vec<_> = differ[2..].iter().map(|key| find(key).unwrap()).collect();
        assert!(add_ons.iter().all(|add_on| add_on.need(Role::ControlPlane).is_none()));
        assert!(add_ons[..3].iter().all(|add_on| add_on.default(Role::TenantControlPlane) == Some("true")));
    }

    #[test]
    fn examples_in_the_documentation_are_valid() {
        for property in table() {
            if let Some(example) = property.example {
                property.parse(example).expect(property.key);
            }
        }
    }

    #[test]
    fn labels_and_descriptions_read_as_text() {
        for property in table() {
            assert!(property.label.len() <= 60 && !property.label.ends_with('.'), "{}", property.key);
            assert!(property.description.ends_with('.') && property.description.len() <= 400, "{}", property.key);
        }
    }
}
