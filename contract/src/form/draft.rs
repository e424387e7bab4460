//! The values of a form before they are checked against each other.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::codes;
use crate::finding::{Finding, Findings};
use crate::pod_security::PodSecurity;
use crate::properties::{
    self, AddressRange, AddressSource, ControlNode, Kind, Label, Period, Property, Route, Taint, Value,
};
use crate::role::{Role, Roles};
use crate::secret::Secret;

/// The text of a property in a form, as it was filled in, or `None`. A finding if the form is ambiguous.
pub type Texts<'t> = &'t dyn Fn(&Property) -> Result<Option<&'t str>, Finding>;

/// Whether the role's one-time secret is needed: the deployment secret, or a worker's join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretNeed {
    /// A form without one is incomplete.
    Needed,
    /// It was used and erased, or is not at hand.
    Erased,
}

macro_rules! draft {
    ($($name:ident = $key:literal $(=> $field:ident: $type:ty)?;)*) => {
        /// The values whose form is right. A value that is missing or wrong is `None`, or an empty list.
        #[derive(Debug, Default)]
        pub struct Draft {
            /// The role that the form names, or the first of the image. The rest of the form is checked for this role.
            pub role: Option<Role>,
            /// Keys of properties with a wrong value.
            pub wrong: BTreeSet<&'static str>,
            $($(#[doc = concat!("The value of the property `", $key, "`.")] pub $field: $type,)?)*
        }

        impl Form<'_> {
            /// Reads the properties in the order of the form: findings of an empty form begin with its first field.
            fn draft(mut self) -> (Draft, Findings) {
                let mut draft = Draft {
                    role: Some(self.role),
                    wrong: BTreeSet::new(),
                    $($($field: Field::read(&mut self, properties::$name),)?)*
                };
                draft.wrong = self.wrong;
                (draft, self.findings)
            }
        }
    };
}
properties::for_each_field!(draft);

impl Draft {
    /// The static address, with the prefix length of its subnet.
    pub fn address(&self) -> Option<Ipv4Net> {
        match self.address_source? {
            AddressSource::Static(address) => Some(address),
            AddressSource::Dhcp => None,
        }
    }
}

trait Field {
    fn read(form: &mut Form<'_>, key: &'static str) -> Self;
}

impl<T: TryFrom<Value, Error = Value>> Field for Option<T> {
    fn read(form: &mut Form<'_>, key: &'static str) -> Self {
        form.value(key)
    }
}

impl<T: PartialEq> Field for Vec<T>
where
    Self: TryFrom<Value, Error = Value>,
{
    fn read(form: &mut Form<'_>, key: &'static str) -> Self {
        form.list(key)
    }
}

/// Reads every property, for a VM of an image with these roles.
pub fn read(texts: Texts<'_>, roles: &Roles, secret: SecretNeed) -> (Draft, Findings) {
    let role = roles.first();
    let mut form = Form { texts, role, secret, findings: Findings::default(), wrong: BTreeSet::new() };
    form.role = form.role_of(roles);
    form.draft()
}

/// Whether the form of an image with several roles comes with this text.
fn filled_in(property: &Property, text: &str) -> bool {
    // The image decides this default.
    property.kind == Kind::KubernetesMinor || Role::ALL.iter().any(|role| property.default(*role) == Some(text))
}

/// Reads values of the table.
struct Form<'a> {
    texts: Texts<'a>,
    role: Role,
    secret: SecretNeed,
    findings: Findings,
    wrong: BTreeSet<&'static str>,
}

impl Form<'_> {
    /// The role that the form names, if the image has it, or the image's first.
    fn role_of(&mut self, roles: &Roles) -> Role {
        let named = self.value::<Role>(properties::ROLE);
        if let Some(role) = named.filter(|role| !roles.contains(*role)) {
            self.wrong.insert(properties::ROLE);
            self.findings.push(codes::ROLE_NOT_IN_IMAGE.finding(
                properties::ROLE,
                format!("it is {role}, and VMs of this image are {roles}"),
                "Correct it, or deploy the OVA of that role",
            ));
        }
        named.filter(|role| roles.contains(*role)).unwrap_or(roles.first())
    }

    /// The value of a property or its default; a finding when it is wrong, or
    /// missing and required.
    fn value<T: TryFrom<Value, Error = Value>>(&mut self, key: &'static str) -> Option<T> {
        self.value_of(properties::find(key).expect("a key of the table"))
    }

    fn value_of<T: TryFrom<Value, Error = Value>>(&mut self, property: &Property) -> Option<T> {
        let key = property.key;
        let text = match (self.texts)(property) {
            Ok(text) => text,
            Err(finding) => {
                self.wrong.insert(key);
                self.findings.push(finding);
                return None;
            }
        };
        let text = text.filter(|text| !text.trim().is_empty());
        if property.need(self.role).is_none() {
            if text.is_some_and(|text| !filled_in(property, text)) {
                self.findings.push(codes::PROPERTY_NOT_USED.finding(
                    key,
                    format!("\"{}\" is set, and is not used by {}", property.label, self.role.title()),
                    "Leave it empty",
                ));
            }
            return None;
        }
        let Some(text) = text.or(property.default(self.role)) else {
            if property.required(self.role)
                && !([properties::DEPLOYMENT_SECRET, properties::JOIN_TOKEN].contains(&key)
                    && self.secret == SecretNeed::Erased)
            {
                self.findings.push(codes::PROPERTY_MISSING.finding(
                    key,
                    format!("\"{}\" is not set", property.label),
                    format!("Give it in the OVF properties: {}", property.kind.documentation()),
                ));
            }
            return None;
        };
        match property.parse(text) {
            Ok(value) => Some(T::try_from(value).expect("the type of the table's kind")),
            Err(findings) => {
                self.wrong.insert(key);
                self.findings.extend(findings);
                None
            }
        }
    }

    /// A list, each entry once.
    fn list<T: PartialEq>(&mut self, key: &'static str) -> Vec<T>
    where
        Vec<T>: TryFrom<Value, Error = Value>,
    {
        let mut entries: Vec<T> = Vec::new();
        for (index, entry) in self.value::<Vec<T>>(key).unwrap_or_default().into_iter().enumerate() {
            if !entries.contains(&entry) {
                entries.push(entry);
                continue;
            }
            self.findings.push(codes::PROPERTY_REPEATED.finding(
                key,
                format!("entry {} repeats an earlier entry", index + 1),
                "Give each entry once",
            ));
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_property_of_role_is_reported() {
        let target = properties::find(properties::SNAPSHOT_TARGET).unwrap().clone();
        let target = target.need_in(Role::TenantControlPlane, None);
        let node_name = properties::find(properties::NODE_NAME).unwrap().clone();
        let node_name = node_name.need_in(Role::TenantControlPlane, None);
        let texts = |property: &Property| -> Result<Option<&str>, Finding> {
            Ok((property.key == properties::SNAPSHOT_TARGET).then_some("https://b.example/"))
        };
        let read = |role| {
            let (findings, wrong) = (Findings::default(), BTreeSet::new());
            let mut form = Form { texts: &texts, role, secret: SecretNeed::Needed, findings, wrong };
            assert_eq!(form.value_of::<String>(&node_name), None);
            (form.value_of::<Secret>(&target).is_some(), form.findings)
        };
        let (taken, findings) = read(Role::TenantControlPlane);
        let told: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), finding.seen.as_str())).collect();
        assert!(!taken && !findings.has_errors());
        assert_eq!(
            told,
            [(
                "property.not-used",
                "\"Snapshot target\" is set, and is not used by a control-plane node of a tenant cluster"
            )]
        );
        let (taken, findings) = read(Role::ControlPlane);
        assert!(taken && findings.iter().all(|finding| finding.code == "property.missing"));
    }
}
