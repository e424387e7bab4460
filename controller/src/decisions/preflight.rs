//! The preflight: whether everything that a cluster needs is available according to objects, before the first VM. The vCenter's
//! own state of places and templates is checked afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kube::ResourceExt;

use super::access::Access;
use super::addresses::{Malformed, subnet};
use super::cluster::is_begun;
use super::node_settings::node_settings_hashes;
use super::obstacle::Obstacle;
use super::owned::INPUT_TYPE;
use super::pod_range::exceeds_range;
use super::resolved::standing;
use crate::objects::{
    AUTO, AddressRange, Addressing, ConditionStatus, IPPool, IPPoolSpec, Provider, ProviderNetwork, ProviderReason,
    Reason, Resolved, Tenant, TenantCluster, TenantClusterReason, VMClass, VSphere,
};

/// The objects that a cluster's spec names. Missing ones are `None`.
#[derive(Clone, Copy, Debug)]
pub struct PreflightInputs<'a> {
    pub cluster: &'a TenantCluster,
    pub provider: Option<&'a Provider>,
    pub class: Option<&'a VMClass>,
    pub pools: &'a [IPPool],
    /// All Tenants.
    pub tenants: &'a [Tenant],
    /// The existing Secrets that the spec names, with their keys.
    pub secrets: &'a BTreeMap<String, BTreeSet<String>>,
    /// The number of workers that the cluster's pools want.
    pub workers: u32,
}

/// A Secret that a spec names, with its required keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededSecret {
    pub name: String,
    pub keys: &'static [&'static str],
    /// The fields that decide where its content goes.
    pub fields: &'static [&'static str],
}

/// The key with the hash of the consoles' password.
pub const CONSOLE_PASSWORD_HASH: &str = "console-password-hash";
/// The keys with a user and a password.
pub const LOGIN: [&str; 2] = ["username", "password"];

/// The Secrets that a cluster's control-plane nodes need.
pub fn needed_secrets(cluster: &TenantCluster) -> Vec<NeededSecret> {
    let console = cluster.spec.site.console_password_ref.as_ref();
    let console = console.map(|it| NeededSecret {
        name: it.name.clone(),
        keys: &[CONSOLE_PASSWORD_HASH],
        fields: &["site.consolePasswordRef"],
    });
    let backup = cluster.spec.backup.as_ref().and_then(|backup| backup.credentials_ref.as_ref());
    let backup = backup.map(|it| NeededSecret {
        name: it.name.clone(),
        keys: &LOGIN,
        fields: &["backup.target", "backup.credentialsRef"],
    });
    console.into_iter().chain(backup).collect()
}

/// Whether the controller reads a Secret of this type that a spec names. It has the type of inputs, or the cluster is from before
/// this type, and its nodes were created with this Secret. Otherwise a user who names a Secret could learn its content from nodes
/// without a right to read it.
pub fn is_input(kind: Option<&str>, needed: &NeededSecret, cluster: &TenantCluster) -> bool {
    let is_kept = |resolved: &Resolved| {
        let (told, now) = (&resolved.node_settings, node_settings_hashes(&cluster.spec, &BTreeMap::new()));
        let is_same = |field: &&str| now.contains_key(*field) && now.get(*field) == told.get(*field);
        is_begun(cluster) && !resolved.requires_input_type && needed.fields.iter().all(is_same)
    };
    kind == Some(INPUT_TYPE) || cluster.resolved().is_some_and(is_kept)
}

/// The Provider's network for a cluster's control-plane nodes.
pub fn network<'p>(cluster: &TenantCluster, provider: &'p Provider) -> Option<&'p ProviderNetwork> {
    let mut networks = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.networks);
    networks.find(|network| network.name == cluster.spec.network.name)
}

/// The pool of the addresses of a cluster's control-plane nodes.
pub fn pool_of_nodes<'p>(cluster: &TenantCluster, provider: &Provider, pools: &'p [IPPool]) -> Option<&'p IPPool> {
    let name = &network(cluster, provider)?.pool_ref.as_ref()?.name;
    pools.iter().find(|pool| pool.metadata.name.as_ref() == Some(name))
}

/// The obstacles of a cluster, the most important first.
pub fn obstacles(around: &PreflightInputs<'_>) -> Vec<Obstacle> {
    let mut found = Obstacles(Vec::new());
    found.unsupported(around.cluster);
    let Some(provider) = around.provider else {
        found.missing("Provider", &around.cluster.spec.provider_ref.name);
        return found.0;
    };
    let namespace = around.cluster.metadata.namespace.as_deref().unwrap_or_default();
    found.0.extend(Access::of(around.tenants, namespace).cluster(
        around.cluster,
        provider,
        (pool_of_nodes(around.cluster, provider, around.pools), around.pools),
    ));
    found.references(around, provider);
    found.secrets(around);
    found.ranges(around, provider);
    let exceeded = exceeds_range(around.cluster, around.workers.into());
    found.0.extend(exceeded.map(|words| Obstacle::new(TenantClusterReason::PodRangeExhausted, words)));
    found.readiness(provider);
    found.0
}

struct Obstacles(Vec<Obstacle>);

impl Obstacles {
    fn add(&mut self, reason: TenantClusterReason, message: impl Into<String>) {
        self.0.push(Obstacle::new(reason, message));
    }

    fn missing(&mut self, kind: &str, name: &str) {
        self.add(TenantClusterReason::ReferenceMissing, format!("there is no {kind} {name}"));
    }

    /// Fields that this version does not support are reported, not ignored.
    fn unsupported(&mut self, cluster: &TenantCluster) {
        if cluster.spec.restore.is_some() {
            self.add(TenantClusterReason::NotSupported, "spec.restore: clusters are not made from a snapshot yet");
        }
    }

    fn references(&mut self, around: &PreflightInputs<'_>, provider: &Provider) {
        let spec = &around.cluster.spec;
        let nothing = Vec::new();
        let zones = provider.spec.vsphere.as_ref().map_or(&nothing, |VSphere { zones, .. }| zones);
        for zone in spec.control_plane.zones.iter().filter(|name| !zones.iter().any(|zone| zone.name == **name)) {
            self.missing("zone", &format!("{zone} of the Provider {}", spec.provider_ref.name));
        }
        match network(around.cluster, provider) {
            None => {
                self.missing("network", &format!("{} of the Provider {}", spec.network.name, spec.provider_ref.name))
            }
            Some(network) if network.addressing == Addressing::Dhcp => {
                let words = format!(
                    "the network {} has no IPPool, and control-plane nodes take no address by DHCP",
                    network.name
                );
                self.add(TenantClusterReason::ReferenceMissing, words);
            }
            Some(network) => self.pool(around, network.pool_ref.as_ref().map(|pool| &pool.name)),
        }
        self.pool(around, spec.network.endpoint.pool_ref.as_ref().map(|pool| &pool.name));
        let vips = spec.network.service_vips.as_ref();
        self.pool(around, vips.and_then(|vips| vips.pool_ref.as_ref()).map(|pool| &pool.name));
        if spec.control_plane.vm_class != AUTO && around.class.is_none() {
            self.missing("VMClass", &spec.control_plane.vm_class);
        }
    }

    fn pool(&mut self, around: &PreflightInputs<'_>, name: Option<&String>) {
        let Some(name) = name else { return };
        if !around.pools.iter().any(|pool| pool.metadata.name.as_ref() == Some(name)) {
            self.missing("IPPool", name);
        }
    }

    fn secrets(&mut self, around: &PreflightInputs<'_>) {
        for NeededSecret { name, keys, .. } in needed_secrets(around.cluster) {
            match around.secrets.get(&name) {
                None => {
                    let words = format!(
                        "there is no Secret {name} of the type {INPUT_TYPE}: create it with kubectl create secret generic \
                         --type={INPUT_TYPE}; the type of a Secret cannot change"
                    );
                    self.add(TenantClusterReason::SecretMissing, words);
                }
                Some(there) => {
                    for key in keys.iter().filter(|key| !there.contains(**key)) {
                        self.add(TenantClusterReason::SecretMissing, format!("the Secret {name} has no {key}"));
                    }
                }
            }
        }
    }

    /// The endpoint moves between nodes within the subnet of the control-plane nodes, and the nodes answer for addresses of
    /// Services there. This applies to named addresses and to all addresses of their pools. The form check finds other overlaps,
    /// as the nodes would.
    fn ranges(&mut self, around: &PreflightInputs<'_>, provider: &Provider) {
        let Some(pool) = pool_of_nodes(around.cluster, provider, around.pools) else { return };
        let network = &around.cluster.spec.network;
        if let Some(address) = &network.endpoint.address {
            self.inside(&pool.spec, address, &format!("the endpoint {address}"));
        }
        let vips = network.service_vips.as_ref();
        for AddressRange { first, last } in vips.iter().filter_map(|vips| vips.ranges.as_ref()).flatten() {
            for address in [first, last] {
                self.inside(&pool.spec, address, &format!("{address} of network.serviceVIPs"));
            }
        }
        let of_vips = vips.and_then(|vips| vips.pool_ref.as_ref());
        for (what, other) in [("the endpoint's", network.endpoint.pool_ref.as_ref()), ("the serviceVIPs'", of_vips)] {
            let other = other.and_then(|other| around.pools.iter().find(|pool| pool.name_any() == other.name));
            for AddressRange { first, last } in other.iter().flat_map(|other| &other.spec.ranges) {
                for address in [first, last] {
                    self.inside(&pool.spec, address, &format!("{address} of {what} IPPool"));
                }
            }
        }
    }

    fn inside(&mut self, pool: &IPPoolSpec, address: &str, what: &str) {
        let is_inside = || -> Result<bool, Malformed> {
            let (first, last, _) = subnet(pool)?;
            Ok(address.parse::<Ipv4Addr>().is_ok_and(|address| (first..=last).contains(&u32::from(address))))
        };
        match is_inside() {
            Ok(true) => {}
            Ok(false) => {
                let words = format!("{what} is not in the subnet of the control-plane nodes, {}", pool.subnet);
                let obstacle = Obstacle::new(TenantClusterReason::RangesOverlap, words);
                // The first and the last address of a range may be the same.
                if !self.0.contains(&obstacle) {
                    self.0.push(obstacle);
                }
            }
            Err(error) => self.add(TenantClusterReason::PreflightNotKnown, error.to_string()),
        }
    }

    fn readiness(&mut self, provider: &Provider) {
        let name = provider.metadata.name.as_deref().unwrap_or_default();
        let conditions = provider.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        match standing(conditions, ProviderReason::Available.condition()) {
            Some((ConditionStatus::True, _)) => {}
            Some((ConditionStatus::False, why)) => {
                self.add(TenantClusterReason::ProviderNotReady, format!("the Provider {name} is not Ready: {why}"));
            }
            Some((ConditionStatus::Unknown, _)) | None => {
                let words = format!("it is not known yet whether the Provider {name} is Ready");
                self.add(TenantClusterReason::PreflightNotKnown, words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{class, cluster, now, pool, provider, tenant};
    use crate::objects::{
        Backup, Endpoint, FromNamespaces, Reference, Restore, ServiceVips, TenantClusterReason as Why, set,
    };

    struct Case {
        cluster: TenantCluster,
        provider: Option<Provider>,
        class: Option<VMClass>,
        pools: Vec<IPPool>,
        tenants: Vec<Tenant>,
        secrets: BTreeMap<String, BTreeSet<String>>,
    }

    impl Case {
        fn new() -> Self {
            let (pools, tenants, secrets) = (vec![pool()], Vec::new(), BTreeMap::new());
            Self { cluster: cluster(), provider: Some(provider()), class: None, pools, tenants, secrets }
        }

        fn judged(&self) -> Vec<Obstacle> {
            obstacles(&PreflightInputs {
                cluster: &self.cluster,
                provider: self.provider.as_ref(),
                class: self.class.as_ref(),
                pools: &self.pools,
                tenants: &self.tenants,
                secrets: &self.secrets,
                workers: 2,
            })
        }

        fn with_secret(&mut self, name: &str, keys: &[&str]) {
            self.secrets.insert(name.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect());
        }
    }

    #[test]
    fn cluster_with_all_objects_has_no_obstacle() {
        let mut case = Case::new();
        assert_eq!(case.judged(), []);
        case.cluster.spec.control_plane.vm_class = "medium".to_owned();
        case.class = Some(VMClass::new("medium", class()));
        case.cluster.spec.site.console_password_ref = Some(Reference::to("console"));
        case.with_secret("console", &[CONSOLE_PASSWORD_HASH]);
        assert_eq!(case.judged(), []);
    }

    #[test]
    fn each_obstacle_has_its_reason_and_name() {
        type Change<'a> = &'a dyn Fn(&mut Case);
        let backup = || Backup {
            every: "6h".to_owned(),
            target: "https://backup.example.com/".to_owned(),
            credentials_ref: Some(Reference::to("shop-backup")),
            recovery_public_key: None,
        };
        let restore = || Restore {
            snapshot: "https://backup.example.com/a".to_owned(),
            digest: format!("sha256:{}", "0a".repeat(32)),
            recovery_key_ref: Reference::to("key"),
            credentials_ref: None,
        };
        let other_pool = |it: &mut Case, first: &str, last: &str| {
            let mut other = pool();
            other.metadata.name = Some("other".to_owned());
            other.spec.subnet = "192.168.0.0/16".to_owned();
            (other.spec.ranges[0].first, other.spec.ranges[0].last) = (first.to_owned(), last.to_owned());
            it.pools.push(other);
            Some(Reference::to("other"))
        };
        let named = |first: &str, last: &str| {
            let range = AddressRange { first: first.to_owned(), last: last.to_owned() };
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None })
        };
        let cases: [(Why, &str, Change<'_>); 22] = [
            (Why::ReferenceMissing, "Provider dc1", &|it| it.provider = None),
            (Why::ReferenceMissing, "zone c", &|it| it.cluster.spec.control_plane.zones = vec!["c".to_owned()]),
            (Why::ReferenceMissing, "network green", &|it| it.cluster.spec.network.name = "green".to_owned()),
            (Why::ReferenceMissing, "no address by DHCP", &|it| it.cluster.spec.network.name = "leased".to_owned()),
            (Why::ReferenceMissing, "IPPool blue-nodes", &|it| it.pools.clear()),
            (Why::ReferenceMissing, "IPPool api", &|it| {
                it.cluster.spec.network.endpoint = Endpoint { address: None, pool_ref: Some(Reference::to("api")) };
            }),
            (Why::ReferenceMissing, "IPPool vips", &|it| {
                let pool_ref = Some(Reference::to("vips"));
                it.cluster.spec.network.service_vips = Some(ServiceVips { ranges: None, pool_ref, count: Some(1) });
            }),
            (Why::ReferenceMissing, "VMClass medium", &|it| {
                it.cluster.spec.control_plane.vm_class = "medium".to_owned()
            }),
            (Why::NamespaceNotAllowed, "team-red", &|it| it.cluster.metadata.namespace = Some("team-red".to_owned())),
            (Why::NamespaceNotAllowed, "the network blue", &|it| {
                it.tenants = vec![tenant("red", &["team-red"], &["blue"])];
            }),
            (Why::ProviderNotReady, "password", &|it| {
                let conditions = &mut it.provider.as_mut().unwrap().status.as_mut().unwrap().conditions;
                set(conditions, ProviderReason::NotReady, "the password is refused", 1, &now());
            }),
            (Why::PreflightNotKnown, "dc1", &|it| it.provider.as_mut().unwrap().status = None),
            (Why::SecretMissing, "Secret shop-backup", &|it| it.cluster.spec.backup = Some(backup())),
            (Why::SecretMissing, "password", &|it| {
                it.cluster.spec.backup = Some(backup());
                it.with_secret("shop-backup", &["username"]);
            }),
            (Why::RangesOverlap, "192.168.11.10", &|it| {
                it.cluster.spec.network.endpoint.address = Some("192.168.11.10".to_owned());
            }),
            (Why::RangesOverlap, "192.168.9.5 of the endpoint's IPPool", &|it| {
                let pool_ref = other_pool(it, "192.168.9.5", "192.168.10.9");
                it.cluster.spec.network.endpoint = Endpoint { address: None, pool_ref };
            }),
            (Why::RangesOverlap, "192.168.11.9 of the endpoint's IPPool", &|it| {
                let pool_ref = other_pool(it, "192.168.10.5", "192.168.11.9");
                it.cluster.spec.network.endpoint = Endpoint { address: None, pool_ref };
            }),
            (Why::RangesOverlap, "192.168.11.9 of the serviceVIPs' IPPool", &|it| {
                let pool_ref = other_pool(it, "192.168.11.5", "192.168.11.9");
                it.cluster.spec.network.service_vips = Some(ServiceVips { ranges: None, pool_ref, count: Some(1) });
            }),
            (Why::RangesOverlap, "192.168.9.9 of network.serviceVIPs", &|it| {
                it.cluster.spec.network.service_vips = named("192.168.9.9", "192.168.10.9");
            }),
            (Why::RangesOverlap, "192.168.11.1 of network.serviceVIPs", &|it| {
                it.cluster.spec.network.service_vips = named("192.168.10.9", "192.168.11.1");
            }),
            // Finding 7 of controller.md: three control-plane nodes and two workers.
            (Why::PodRangeExhausted, "room for 4 nodes with a /24 each, and 5 are wanted", &|it| {
                it.cluster.spec.network.pods = "10.240.0.0/22".to_owned();
            }),
            (Why::NotSupported, "spec.restore", &|it| it.cluster.spec.restore = Some(restore())),
        ];
        for (reason, words, change) in cases {
            let mut case = Case::new();
            change(&mut case);
            let found = case.judged();
            let is_told = found.iter().any(|it| it.reason == reason && it.message.contains(words));
            assert!(is_told, "{words}: {found:?}");
        }
    }

    // Finding 1 of controller.md: naming a Secret must not show its content to a user without the right to read it.
    #[test]
    fn other_secret_types_are_read_only_as_before() {
        let mut cluster = cluster();
        cluster.spec.backup = Some(Backup {
            every: "6h".to_owned(),
            target: "https://backup.example.com/".to_owned(),
            credentials_ref: Some(Reference::to("shop-backup")),
            recovery_public_key: None,
        });
        let is_read = |cluster: &TenantCluster, kind: &str| is_input(Some(kind), &needed_secrets(cluster)[0], cluster);
        assert!(is_read(&cluster, INPUT_TYPE) && !is_read(&cluster, "Opaque"));
        let deployment =
            serde_json::json!({"cluster": "shop", "lifecycle": "Active", "image": {"name": "kaas-tenant 0.2.0"}});
        // Nodes got its content later: it is recorded with its version.
        let versions = BTreeMap::from([("shop-backup".to_owned(), "1".to_owned())]);
        let node_settings = node_settings_hashes(&cluster.spec, &versions);
        let resolved = Resolved { node_settings, ..Resolved::default() };
        let status = serde_json::json!({"deployment": deployment, "resolved": resolved});
        cluster.status = Some(serde_json::from_value(status).unwrap());
        assert!(is_read(&cluster, "Opaque"), "named before the type existed");
        let backup = cluster.spec.backup.clone().unwrap();
        let mut moved = cluster.clone();
        moved.spec.backup = Some(Backup { target: "https://eve.example/".to_owned(), ..backup.clone() });
        assert!(!is_read(&moved, "Opaque"), "its content would go elsewhere");
        let mut other = cluster.clone();
        let credentials_ref = Some(Reference::to("shop-deployer"));
        other.spec.backup = Some(Backup { credentials_ref, ..backup });
        assert!(!is_read(&other, "Opaque"));
        let mut new = cluster;
        new.status.as_mut().unwrap().resolved.as_mut().unwrap().requires_input_type = true;
        assert!(!is_read(&new, "Opaque") && is_read(&new, INPUT_TYPE));
    }

    #[test]
    fn namespace_must_be_allowed_by_the_provider() {
        let mut case = Case::new();
        case.provider.as_mut().unwrap().spec.allowed_namespaces.names.clear();
        assert_eq!(case.judged()[0].reason, Why::NamespaceNotAllowed, "none means that no cluster may be made");
        case.provider.as_mut().unwrap().spec.allowed_namespaces.from = FromNamespaces::All;
        assert_eq!(case.judged(), []);
    }
}
