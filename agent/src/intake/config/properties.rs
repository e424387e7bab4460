//! A configuration as the properties that give it: for filling in forms of
//! further nodes, and for the lab.

use contract::properties as table;
use contract::secret::Secret;

use super::{Config, ControlPlane};

impl Config {
    /// Keys and values of the OVF properties that give this configuration; those
    /// that are not set are left out. The deployment secret goes in when given.
    /// Network adapters are not properties.
    pub fn properties(&self, secret: Option<&Secret>) -> Vec<(&'static str, String)> {
        match self {
            Self::ControlPlane(config) => config.properties(secret),
        }
    }
}

impl ControlPlane {
    fn properties(&self, secret: Option<&Secret>) -> Vec<(&'static str, String)> {
        let (cluster, node) = (&self.cluster, &self.node);
        let primary = &node.interfaces[0];
        let proxy = node.proxy.as_ref();
        let control_nodes: Vec<String> =
            cluster.control_nodes.iter().map(|node| format!("{}={}", node.name, node.address)).collect();
        let routes: Vec<String> = node.routes.iter().map(ToString::to_string).collect();
        let dns_servers: Vec<String> = node.dns_servers.iter().map(ToString::to_string).collect();
        let admin_networks: Vec<String> = node.admin_networks.iter().map(ToString::to_string).collect();
        let all = [
            (table::ROLE, Some(self.role.to_string())),
            (table::NODE_NAME, Some(node.name.clone())),
            (table::ADDRESS, Some(primary.address.to_string())),
            (table::GATEWAY, primary.gateway.map(|address| address.to_string())),
            (table::DATA_ADDRESS, node.interfaces.get(1).map(|data| data.address.to_string())),
            (table::ROUTES, Some(routes.join(","))),
            (table::DNS_SERVERS, Some(dns_servers.join(","))),
            (table::SEARCH_DOMAINS, Some(node.search_domains.join(","))),
            (table::NTP_SERVERS, Some(node.ntp_servers.join(","))),
            (table::CLUSTER_NAME, Some(cluster.name.clone())),
            (table::CONTROL_NODES, Some(control_nodes.join(","))),
            (table::API_VIP, cluster.virtual_address.map(|address| address.to_string())),
            (table::DEPLOYMENT_SECRET, secret.map(|secret| secret.expose().to_owned())),
            (table::KUBERNETES_VERSION, Some(cluster.kubernetes_minor.clone())),
            (table::POD_CIDR, Some(cluster.pod_cidr.to_string())),
            (table::SERVICE_CIDR, Some(cluster.service_cidr.to_string())),
            (table::POD_SECURITY, Some(cluster.pod_security.to_string())),
            (table::SSH_AUTHORIZED_KEYS, Some(node.ssh_authorized_keys.join("\\n"))),
            (table::CONSOLE_PASSWORD_HASH, node.console_password_hash.clone()),
            (table::ADMIN_CIDRS, Some(admin_networks.join(","))),
            (table::HTTP_PROXY, proxy.and_then(|proxy| proxy.http.clone())),
            (table::HTTPS_PROXY, proxy.and_then(|proxy| proxy.https.clone())),
            (table::NO_PROXY, proxy.map(|proxy| proxy.exclusions.join(","))),
            (table::EXTRA_CA_CERTIFICATES, Some(node.extra_ca_certificates.concat().replace('\n', "\\n"))),
            (table::REGISTRY_MIRROR, node.registry_mirror.clone()),
            (table::SNAPSHOT_TARGET, self.snapshot_target.as_ref().map(|target| target.expose().to_owned())),
            (table::RECOVERY_PUBLIC_KEY, self.recovery_public_key.clone()),
            (table::VXLAN_PORT, Some(cluster.vxlan_port.to_string())),
            (table::TIMEOUT_FACTOR, Some(self.timeout_factor.to_string())),
        ];
        let used = |key: &str| table::find(key).is_some_and(|property| property.need(self.role).is_some());
        let all = all.into_iter().chain(cluster.add_ons.properties().into_iter().filter(|(key, _)| used(key)));
        let set = all.filter_map(|(key, value)| Some((key, value?)));
        set.filter(|(_, value)| !value.is_empty()).collect()
    }
}
