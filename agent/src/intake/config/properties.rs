//! A configuration as the properties that give it, for forms of further nodes and for the lab.

use std::collections::BTreeMap;

use contract::properties::{self as table, Category, Property};
use contract::role::Role;
use contract::secret::Secret;

use super::{Config, ControlPlane, Node, Worker};

/// A key with its optional value.
type Row = (&'static str, Option<String>);

impl Config {
    /// Keys and values of the OVF properties that give this configuration, without those that are not set. Includes the
    /// role's one-time secret, if given. Network adapters are no properties.
    pub fn properties(&self, secret: Option<&Secret>) -> Vec<(&'static str, String)> {
        let secret = secret.map(|secret| secret.expose().to_owned());
        let mut all = of_node(self.role(), self.node());
        all.extend(match self {
            Self::ControlPlane(config) => of_control_plane(config, secret),
            Self::Worker(config) => of_worker(config, secret),
        });
        all.push((table::TIMEOUT_FACTOR, Some(self.timeout_factor().to_string())));
        let place = |key: &str| table::table().iter().position(|property| property.key == key);
        all.sort_by_key(|(key, _)| place(key));
        let set = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
        set.filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Whether all members of a cluster must have the same value. A replacement is admitted only with these values.
fn is_agreed(property: &Property) -> bool {
    let is_of_cluster = property.category == Category::Cluster && !property.secret();
    is_of_cluster || property.key == table::VXLAN_PORT
}

impl ControlPlane {
    /// The properties that must be equal on all members. An unset one has an empty value, because a form may still have
    /// a former value.
    pub fn agreed(&self) -> BTreeMap<String, String> {
        let given: BTreeMap<_, _> = of_control_plane(self, None).into_iter().collect();
        let value = |key: &str| given.get(key).cloned().flatten().unwrap_or_default();
        let agreed = table::table().iter().filter(|row| is_agreed(row) && row.need(self.role).is_some());
        agreed.map(|row| (row.key.to_owned(), value(row.key))).collect()
    }
}

fn joined<T: ToString>(list: &[T]) -> Option<String> {
    Some(list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

fn of_node(role: Role, node: &Node) -> Vec<Row> {
    let (primary, proxy) = (&node.interfaces[0], node.proxy.as_ref());
    vec![
        (table::ROLE, Some(role.to_string())),
        (table::NODE_NAME, Some(node.name.clone())),
        (table::ADDRESS, Some(primary.address.to_string())),
        (table::GATEWAY, primary.gateway.map(|address| address.to_string())),
        (table::DATA_ADDRESS, node.interfaces.get(1).map(|data| data.address.to_string())),
        (table::ROUTES, joined(&node.routes)),
        (table::DNS_SERVERS, joined(&node.dns_servers)),
        (table::SEARCH_DOMAINS, joined(&node.search_domains)),
        (table::NTP_SERVERS, joined(&node.ntp_servers)),
        (table::SSH_AUTHORIZED_KEYS, Some(node.ssh_authorized_keys.join("\\n"))),
        (table::CONSOLE_PASSWORD_HASH, node.console_password_hash.clone()),
        (table::ADMIN_CIDRS, joined(&node.admin_networks)),
        (table::HTTP_PROXY, proxy.and_then(|proxy| proxy.http.clone())),
        (table::HTTPS_PROXY, proxy.and_then(|proxy| proxy.https.clone())),
        (table::NO_PROXY, proxy.map(|proxy| proxy.exclusions.join(","))),
        (table::EXTRA_CA_CERTIFICATES, Some(node.extra_ca_certificates.concat().replace('\n', "\\n"))),
        (table::REGISTRY_MIRROR, node.registry_mirror.clone()),
    ]
}

fn of_control_plane(config: &ControlPlane, secret: Option<String>) -> Vec<Row> {
    let cluster = &config.cluster;
    let nodes: Vec<String> =
        cluster.control_nodes.iter().map(|node| format!("{}={}", node.name, node.address)).collect();
    let used = |key: &str| table::find(key).is_some_and(|property| property.need(config.role).is_some());
    let mut rows = vec![
        (table::CLUSTER_NAME, Some(cluster.name.clone())),
        (table::CONTROL_NODES, joined(&nodes)),
        (table::API_VIP, cluster.virtual_address.map(|address| address.to_string())),
        (table::DEPLOYMENT_SECRET, secret),
        (table::KUBERNETES_VERSION, Some(cluster.kubernetes_minor.clone())),
        (table::POD_CIDR, Some(cluster.pod_cidr.to_string())),
        (table::NODE_PREFIX, Some(cluster.node_prefix.to_string())),
        (table::SERVICE_CIDR, Some(cluster.service_cidr.to_string())),
        (table::POD_SECURITY, Some(cluster.pod_security.to_string())),
        (table::SNAPSHOT_TARGET, config.snapshot_target.as_ref().map(|target| target.expose().to_owned())),
        (table::SNAPSHOT_EVERY, Some(config.snapshot_every.to_string())),
        (table::RECOVERY_PUBLIC_KEY, config.recovery_public_key.clone()),
        (table::DEPLOYER_PUBLIC_KEY, config.deployer_public_key.clone()),
        (table::VXLAN_PORT, Some(cluster.vxlan_port.to_string())),
    ];
    rows.extend(cluster.add_ons.properties().into_iter().filter(|(key, _)| used(key)));
    rows
}

fn of_worker(config: &Worker, token: Option<String>) -> Vec<Row> {
    let (cluster, registration) = (&config.cluster, &config.registration);
    vec![
        (table::CLUSTER_NAME, Some(cluster.name.clone())),
        (table::API_VIP, Some(cluster.api_address.to_string())),
        (table::JOIN_TOKEN, token),
        (table::CLUSTER_CA_HASH, Some(cluster.ca_hash.clone())),
        (table::NODE_LABELS, joined(&registration.labels)),
        (table::NODE_TAINTS, joined(&registration.taints)),
        (table::NODE_POOL, registration.pool.clone()),
    ]
}
