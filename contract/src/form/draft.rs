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

/// The text of a form for a property, as it was filled in. `None` if the form has none. A finding if the text is ambiguous.
pub type Texts<'t> = &'t dyn Fn(&Property) -> Result<Option<&'t str>, Finding>;

/// Whether the role's one-time secret is needed: the deployment secret, or a worker's join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretNeed {
    /// A form without it is incomplete.
    Needed,
    /// It was used and erased, or is not available.
    Erased,
}

/// The well-formed values of a form. Missing and malformed ones are `None` or empty.
#[derive(Debug, Default)]
pub struct Draft {
    /// The role in the form, or the image's first. The rest of the form is judged by it.
    pub role: Option<Role>,
    /// The node's name.
    pub name: Option<String>,
    /// The static address.
    pub address: Option<Ipv4Net>,
    /// Whether a DHCP server leases the address.
    pub is_leased: bool,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// The address on a data network.
    pub data_address: Option<Ipv4Net>,
    /// Static routes.
    pub routes: Vec<Route>,
    /// Resolvers, in order.
    pub dns_servers: Vec<Ipv4Addr>,
    /// Search domains, in order.
    pub search_domains: Vec<String>,
    /// Time servers, names or addresses.
    pub ntp_servers: Vec<String>,
    /// The cluster's name.
    pub cluster_name: Option<String>,
    /// All control-plane nodes.
    pub control_nodes: Option<Vec<ControlNode>>,
    /// The virtual IP of the Kubernetes API.
    pub virtual_address: Option<Ipv4Addr>,
    /// The deployment secret.
    pub secret: Option<Secret>,
    /// The minor version of Kubernetes that the cluster forms with.
    pub kubernetes_minor: Option<String>,
    /// Addresses of pods.
    pub pod_cidr: Option<Ipv4Net>,
    /// Addresses of services.
    pub service_cidr: Option<Ipv4Net>,
    /// The level of pod security in namespaces without their own.
    pub pod_security: Option<PodSecurity>,
    /// Whether the appliance brings cluster DNS.
    pub cluster_dns: Option<bool>,
    /// Whether it brings metrics.
    pub cluster_metrics: Option<bool>,
    /// Whether it brings local volumes.
    pub local_volumes: Option<bool>,
    /// Virtual IPs of services.
    pub service_addresses: Vec<AddressRange>,
    /// Keys for SSH.
    pub ssh_authorized_keys: Vec<String>,
    /// The hash of the console's password.
    pub console_password_hash: Option<String>,
    /// Networks of administrators.
    pub admin_networks: Vec<Ipv4Net>,
    /// Proxy for http:// addresses.
    pub http_proxy: Option<String>,
    /// Proxy for https:// addresses.
    pub https_proxy: Option<String>,
    /// Addresses that are reached without the proxy.
    pub no_proxy: Vec<String>,
    /// Further CAs to trust, in PEM.
    pub extra_ca_certificates: Vec<String>,
    /// Where container images are pulled from.
    pub registry_mirror: Option<String>,
    /// Where snapshots are copied to.
    pub snapshot_target: Option<Secret>,
    /// How often a snapshot is taken.
    pub snapshot_every: Option<Period>,
    /// The operator's public key for a restore.
    pub recovery_public_key: Option<String>,
    /// The public key of the cluster's deployer.
    pub deployer_public_key: Option<String>,
    /// UDP port of the pod network.
    pub vxlan_port: Option<u16>,
    /// The factor of all time limits.
    pub timeout_factor: Option<u32>,
    /// Keys of properties that are given, but malformed.
    pub wrong: BTreeSet<&'static str>,
    /// Labels of a worker's node.
    pub labels: Vec<Label>,
    /// Taints of a worker's node.
    pub taints: Vec<Taint>,
    /// The pool of a worker.
    pub pool: Option<String>,
    /// A worker's join token.
    pub join_token: Option<Secret>,
    /// The hash of the cluster's CA.
    pub authority_hash: Option<String>,
}

/// Reads every property, for a VM of an image with these roles.
pub fn read(texts: Texts<'_>, roles: &Roles, secret: SecretNeed) -> (Draft, Findings) {
    let role = roles.first();
    let mut form = Form { texts, role, secret, findings: Findings::default(), wrong: BTreeSet::new() };
    form.role = form.role_of(roles);
    // In the order of the form, so that its gaps identify an untouched one.
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
        snapshot_every: form.value(properties::SNAPSHOT_EVERY),
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

/// Whether the form of an image with several roles is prefilled with this text.
fn filled_in(property: &Property, text: &str) -> bool {
    // The prefilled minor version depends on the image.
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

    /// The value of a property or its default. Adds a finding if it is malformed, or missing and required.
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
                format!("entry {} repeats an earlier one", index + 1),
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
    fn unused_properties_of_a_role_are_reported() {
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
