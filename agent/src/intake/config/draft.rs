//! The values of an OVF environment before they are checked against each other.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use contract::codes;
use contract::finding::Findings;
use contract::pod_security::PodSecurity;
use contract::properties::{self, AddressRange, AddressSource, Kind, Label, Property, Taint, Value};
use contract::role::{Role, Roles};
use contract::secret::Secret;
use ipnet::Ipv4Net;

use super::{ControlNode, Route};
use crate::intake::environment::Document;

/// Whether the role's one-time secret is needed: the deployment secret, or a worker's join token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretNeed {
    Needed,
    Erased,
}

/// The values whose form is right; what is missing or wrong is none.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// What the form names, or the image's first: the rest of the form is judged by it.
    pub role: Option<Role>,
    pub name: Option<String>,
    /// The static one.
    pub address: Option<Ipv4Net>,
    /// Whether a DHCP server is to lease one.
    pub is_leased: bool,
    pub gateway: Option<Ipv4Addr>,
    pub data_address: Option<Ipv4Net>,
    pub routes: Vec<Route>,
    pub dns_servers: Vec<Ipv4Addr>,
    pub search_domains: Vec<String>,
    pub ntp_servers: Vec<String>,
    pub cluster_name: Option<String>,
    pub control_nodes: Option<Vec<ControlNode>>,
    pub virtual_address: Option<Ipv4Addr>,
    pub secret: Option<Secret>,
    pub kubernetes_minor: Option<String>,
    pub pod_cidr: Option<Ipv4Net>,
    pub service_cidr: Option<Ipv4Net>,
    pub pod_security: Option<PodSecurity>,
    pub cluster_dns: Option<bool>,
    pub cluster_metrics: Option<bool>,
    pub local_volumes: Option<bool>,
    pub service_addresses: Vec<AddressRange>,
    pub ssh_authorized_keys: Vec<String>,
    pub console_password_hash: Option<String>,
    pub admin_networks: Vec<Ipv4Net>,
    pub http_proxy: Option<String>,
    pub https_proxy: Option<String>,
    pub no_proxy: Vec<String>,
    pub extra_ca_certificates: Vec<String>,
    pub registry_mirror: Option<String>,
    pub snapshot_target: Option<Secret>,
    pub recovery_public_key: Option<String>,
    pub deployer_public_key: Option<String>,
    pub vxlan_port: Option<u16>,
    pub timeout_factor: Option<u32>,
    /// Keys of properties that are given, but wrong.
    pub wrong: BTreeSet<&'static str>,
    pub labels: Vec<Label>,
    pub taints: Vec<Taint>,
    pub pool: Option<String>,
    pub join_token: Option<Secret>,
    pub authority_hash: Option<String>,
}

/// Reads every property, for a VM of an image with these roles.
pub(super) fn read(document: &Document, roles: &Roles, secret: SecretNeed) -> (Draft, Findings) {
    let role = roles.first();
    let mut form = Form { document, role, secret, findings: Findings::default(), wrong: BTreeSet::new() };
    form.role = form.role_of(roles);
    // In the order of the form: so an untouched one is known by what it lacks.
    let (name, source) = (form.value(properties::NODE_NAME), form.value(properties::ADDRESS));
    let mut draft = Draft {
        role: Some(form.role),
        name,
        address: source.and_then(|source| match source {
            AddressSource::Static(address) => Some(address),
            AddressSource::Dhcp => None,
        }),
        is_leased: source == Some(AddressSource::Dhcp),
        gateway: form.value(properties::GATEWAY),
        data_address: form.value(properties::DATA_ADDRESS),
        routes: form.list(properties::ROUTES),
        dns_servers: form.list(properties::DNS_SERVERS),
        search_domains: form.list(properties::SEARCH_DOMAINS),
        ntp_servers: form.list(properties::NTP_SERVERS),
        cluster_name: form.value(properties::CLUSTER_NAME),
        control_nodes: form.value(properties::CONTROL_NODES),
        virtual_address: form.value(properties::API_VIP),
        secret: form.value(properties::DEPLOYMENT_SECRET),
        kubernetes_minor: form.value(properties::KUBERNETES_VERSION),
        pod_cidr: form.value(properties::POD_CIDR),
        service_cidr: form.value(properties::SERVICE_CIDR),
        pod_security: form.value(properties::POD_SECURITY),
        cluster_dns: form.value(properties::CLUSTER_DNS),
        cluster_metrics: form.value(properties::CLUSTER_METRICS),
        local_volumes: form.value(properties::LOCAL_VOLUMES),
        service_addresses: form.list(properties::SERVICE_VIPS),
        ssh_authorized_keys: form.list(properties::SSH_AUTHORIZED_KEYS),
        console_password_hash: form.value(properties::CONSOLE_PASSWORD_HASH),
        admin_networks: form.list(properties::ADMIN_CIDRS),
        http_proxy: form.value(properties::HTTP_PROXY),
        https_proxy: form.value(properties::HTTPS_PROXY),
        no_proxy: form.list(properties::NO_PROXY),
        extra_ca_certificates: form.list(properties::EXTRA_CA_CERTIFICATES),
        registry_mirror: form.value(properties::REGISTRY_MIRROR),
        snapshot_target: form.value(properties::SNAPSHOT_TARGET),
        recovery_public_key: form.value(properties::RECOVERY_PUBLIC_KEY),
        deployer_public_key: form.value(properties::DEPLOYER_PUBLIC_KEY),
        vxlan_port: form.value::<u32>(properties::VXLAN_PORT).and_then(|port| u16::try_from(port).ok()),
        timeout_factor: form.value(properties::TIMEOUT_FACTOR),
        labels: form.value(properties::NODE_LABELS).unwrap_or_default(),
        taints: form.value(properties::NODE_TAINTS).unwrap_or_default(),
        pool: form.value(properties::NODE_POOL),
        join_token: form.value(properties::JOIN_TOKEN),
        authority_hash: form.value(properties::CLUSTER_CA_HASH),
        wrong: BTreeSet::new(),
    };
    draft.wrong = form.wrong;
    (draft, form.findings)
}

/// Whether the form of an image with several roles comes with this text.
fn filled_in(property: &Property, text: &str) -> bool {
    // Which minor that is depends on the image.
    property.kind == Kind::KubernetesMinor || Role::ALL.iter().any(|role| property.default(*role) == Some(text))
}

/// Reads values of the table out of a document.
struct Form<'a> {
    document: &'a Document,
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
        let text = match self.document.value(property) {
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
                format!("entry {} is there already", index + 1),
                "Give each entry once",
            ));
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn what_a_role_does_not_use_is_not_asked_for_and_named_when_it_is_given() {
        let target = properties::find(properties::SNAPSHOT_TARGET).unwrap().clone();
        let target = target.need_in(Role::TenantControlPlane, None);
        let node_name = properties::find(properties::NODE_NAME).unwrap().clone();
        let node_name = node_name.need_in(Role::TenantControlPlane, None);
        let values = vec![(properties::SNAPSHOT_TARGET.to_owned(), Zeroizing::new("https://b.example/".to_owned()))];
        let document = Document::of(values, Vec::new());
        let read = |role| {
            let (findings, wrong) = (Findings::default(), BTreeSet::new());
            let mut form = Form { document: &document, role, secret: SecretNeed::Needed, findings, wrong };
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
                "\"Snapshot target\" is set, and is not used by a control node of a tenant cluster"
            )]
        );
        let (taken, findings) = read(Role::ControlPlane);
        assert!(taken && findings.iter().all(|finding| finding.code == "property.missing"));
    }
}
