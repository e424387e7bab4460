//! The desired state of a cluster's control-plane nodes for `fleet`: their Machines, the OVF properties of each VM, and both as
//! [`DesiredState`]. The OVF properties are checked as the VMs would check them, before any VM exists.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context;
use contract::configure::Properties;
use contract::deployer::PrivateKey;
use contract::finding::Severity;
use contract::form::{self, SecretNeed};
use contract::properties as keys;
use contract::role::{Role, Roles};
use fleet::control_plane::{DesiredState, WantedNode};
use fleet::hypervisor::{Placement, Size};
use fleet::workers::Image;
use kube::api::ObjectMeta;
use serde_json::Value;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::addresses::subnet;
use super::node_settings::fields;
use super::obstacle::Obstacle;
use super::owned::{CLUSTER, MACHINE_FINALIZER, owner};
use crate::objects::{
    Discards, IPPoolSpec, Machine, MachineRole, MachineSpec, PinnedImage, Provider, Reference, Removal, Resolved,
    TenantCluster, TenantClusterReason, Zone,
};
use crate::records::digits_of;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlNode {
    /// Name of the node, of its Machine and of its VM.
    pub name: String,
    pub address: Ipv4Addr,
    /// UID of its Machine, and BIOS UUID for its VM.
    pub machine: Uuid,
    pub zone: String,
}

#[derive(Clone, Default)]
pub struct Secrets {
    /// The hash of the password of `admin` on consoles.
    pub console_password_hash: Option<Zeroizing<String>>,
    /// User and password of the server for snapshots.
    pub backup: Option<(Zeroizing<String>, Zeroizing<String>)>,
    /// The version of each Secret, by its name.
    pub versions: BTreeMap<String, String>,
}

/// The deployer's key, and the secret of a cluster's control-plane nodes.
pub struct Keys {
    pub deployer: PrivateKey,
    /// The secret that identifies control-plane nodes to each other while they form a cluster.
    pub deployment_secret: Zeroizing<String>,
}

#[derive(Clone, Copy)]
pub struct NodeSettings<'a> {
    pub cluster: &'a TenantCluster,
    pub resolved: &'a Resolved,
    pub nodes: &'a [ControlNode],
    pub pool: &'a IPPoolSpec,
    pub secrets: &'a Secrets,
    /// Networks from which controllers reach nodes, in addition to those of administrators.
    pub controllers: &'a [String],
}

/// The text of a field in a form.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => entries.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The names of a cluster's control-plane nodes, in the order of the list that each node gets.
pub fn names(cluster: &TenantCluster) -> Vec<String> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    (1..=cluster.spec.control_plane.replicas).map(|number| format!("{name}-cp{number}")).collect()
}

/// The zones of control-plane nodes: those that the spec names, or all of the Provider's, in turn.
pub fn zones<'p>(cluster: &TenantCluster, provider: &'p Provider) -> Vec<&'p Zone> {
    let all = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.zones);
    let named = &cluster.spec.control_plane.zones;
    let is_meant = |zone: &&Zone| named.is_empty() || named.contains(&zone.name);
    let zones: Vec<&Zone> = all.filter(is_meant).collect();
    zones.iter().cycle().take(usize::from(cluster.spec.control_plane.replicas)).copied().collect()
}

pub fn machines(cluster: &TenantCluster, resolved: &Resolved, provider: &Provider) -> Vec<Machine> {
    let spec = |zone: &Zone| MachineSpec {
        cluster_ref: Reference::to(cluster.metadata.name.clone().unwrap_or_default()),
        role: MachineRole::ControlPlane,
        pool_ref: None,
        zone: zone.name.clone(),
        network: cluster.spec.network.name.clone(),
        image: PinnedImage {
            name: resolved.image.clone().unwrap_or_default(),
            digest: resolved.digest.clone().unwrap_or_default(),
        },
        kubernetes: cluster.spec.version.clone(),
        processors: resolved.processors.unwrap_or_default(),
        memory_mib: resolved.memory_mib.unwrap_or_default(),
        data_disk_gib: resolved.data_disk_gib,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        removal: Removal::Destroy,
        drain: Discards::default(),
    };
    let machine = |(name, zone): (String, &Zone)| Machine {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some([(CLUSTER.to_owned(), cluster.metadata.name.clone().unwrap_or_default())].into()),
            owner_references: Some(vec![owner(cluster)]),
            finalizers: Some(vec![MACHINE_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: spec(zone),
        status: None,
    };
    names(cluster).into_iter().zip(zones(cluster, provider)).map(machine).collect()
}

impl NodeSettings<'_> {
    /// The OVF properties of a node's VM, without the deployer's key and the deployment secret.
    ///
    /// # Errors
    /// The subnet cannot be read, or the URL of the server for snapshots takes no user and password.
    pub fn form(&self, node: &ControlNode) -> anyhow::Result<BTreeMap<String, String>> {
        let (spec, site, network) = (&self.cluster.spec, &self.cluster.spec.site, &self.cluster.spec.network);
        let (_, _, prefix) = subnet(self.pool)?;
        let list = self.nodes.iter().map(|node| format!("{}={}", node.name, node.address));
        let or = |own: &[String], pools: &[String]| if own.is_empty() { pools.join(",") } else { own.join(",") };
        let line = |text: &str| text.trim_end().replace("\r\n", "\n").replace('\n', "\\n");
        let admins: Vec<String> = match site.admin_cidrs.is_empty() {
            // An empty list means open to all.
            true => Vec::new(),
            false => site.admin_cidrs.iter().chain(self.controllers).cloned().collect(),
        };
        let mut told: BTreeMap<&str, String> =
            fields(spec).into_iter().map(|(_, property, value)| (property.key, text(&value))).collect();
        // These depend on more than fields of the spec, or have another text.
        told.extend([
            (keys::ROLE, Role::TenantControlPlane.to_string()),
            (keys::NODE_NAME, node.name.clone()),
            (keys::ADDRESS, format!("{}/{prefix}", node.address)),
            (keys::GATEWAY, self.pool.gateway.clone().unwrap_or_default()),
            (keys::DNS_SERVERS, or(&site.dns_servers, &self.pool.dns_servers)),
            (keys::SEARCH_DOMAINS, or(&site.search_domains, &self.pool.search_domains)),
            (keys::CLUSTER_NAME, self.cluster.metadata.name.clone().unwrap_or_default()),
            (keys::CONTROL_NODES, list.collect::<Vec<_>>().join(",")),
            (keys::API_VIP, self.resolved.endpoint.clone().unwrap_or_default()),
            (keys::KUBERNETES_VERSION, spec.version.clone()),
            (keys::POD_CIDR, network.pods.clone()),
            // Images from before this property have 24.
            (
                keys::NODE_PREFIX,
                if network.node_prefix == 24 { String::new() } else { network.node_prefix.to_string() },
            ),
            (keys::SERVICE_CIDR, network.services.clone()),
            (keys::SERVICE_VIPS, self.service_vips()),
            (keys::SSH_AUTHORIZED_KEYS, line(&site.ssh_authorized_keys.join("\n"))),
            (
                keys::CONSOLE_PASSWORD_HASH,
                self.secrets.console_password_hash.as_ref().map(|hash| hash.trim().to_owned()).unwrap_or_default(),
            ),
            (keys::ADMIN_CIDRS, admins.join(",")),
            (keys::EXTRA_CA_CERTIFICATES, line(site.extra_ca_certificates.as_deref().unwrap_or_default())),
            (keys::SNAPSHOT_TARGET, self.snapshot_target()?),
            (keys::VXLAN_PORT, network.vxlan_port.to_string()),
        ]);
        let told = told.into_iter().filter(|(_, value)| !value.is_empty());
        Ok(told.map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The properties that can change while the cluster runs and that follow from the spec. An unset one is empty. All control-plane
    /// nodes have the same values.
    pub fn changeable(&self) -> anyhow::Result<Properties> {
        let mut form = self.form(self.nodes.first().context("there are no control-plane nodes")?)?;
        let can_change = keys::table().iter().filter(|property| property.changeable && !property.spec.is_empty());
        let with_value =
            |property: &keys::Property| (property.key.to_owned(), form.remove(property.key).unwrap_or_default());
        Ok(Properties { properties: can_change.map(with_value).collect() })
    }

    /// The addresses for Services that the cluster has claimed. Addresses that the spec names later are left out: others may have
    /// them.
    fn service_vips(&self) -> String {
        let addresses = self.resolved.service_vips.iter().filter_map(|address| address.parse::<Ipv4Addr>().ok());
        let mut ranges: Vec<(Ipv4Addr, Ipv4Addr)> = Vec::new();
        for address in addresses {
            match ranges.last_mut().filter(|(_, last)| u32::from(*last).checked_add(1) == Some(address.into())) {
                Some((_, last)) => *last = address,
                None => ranges.push((address, address)),
            }
        }
        ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",")
    }

    /// The directory for snapshots, with user and password if required: no other property has a place for these.
    fn snapshot_target(&self) -> anyhow::Result<String> {
        let Some(backup) = &self.cluster.spec.backup else { return Ok(String::new()) };
        let Some((user, password)) = &self.secrets.backup else { return Ok(backup.target.clone()) };
        let mut target: Url = backup.target.parse().context("understanding backup.target")?;
        let is_given = target.set_username(user).and_then(|()| target.set_password(Some(password)));
        is_given.map_err(|()| anyhow::anyhow!("backup.target takes no user and password"))?;
        Ok(target.to_string())
    }

    /// The errors that the VMs would report on their OVF properties. `carried` are the minor versions of the image.
    pub fn obstacles(&self, carried: &[String], now: SystemTime) -> Vec<Obstacle> {
        let roles = Roles::new(vec![Role::TenantControlPlane, Role::Worker]).unwrap_or(Role::TenantControlPlane.into());
        let mut obstacles: Vec<Obstacle> = Vec::new();
        for node in self.nodes {
            let told = match self.form(node) {
                Ok(told) => told,
                Err(error) => {
                    obstacles.push(Obstacle::new(TenantClusterReason::PropertiesRefused, format!("{error:#}")));
                    continue;
                }
            };
            let text = |property: &keys::Property| Ok(told.get(property.key).map(String::as_str));
            // The secret is drawn only after all checks have passed.
            let (draft, mut findings) = form::read(&text, &roles, SecretNeed::Erased);
            findings.extend(form::all(&draft, carried, now));
            for finding in findings.iter().filter(|finding| finding.severity == Severity::Error) {
                let words = format!("{}: {}. {} [{}]", finding.subject, finding.seen, finding.action, finding.code);
                let obstacle = Obstacle::new(TenantClusterReason::PropertiesRefused, words);
                if !obstacles.contains(&obstacle) {
                    obstacles.push(obstacle);
                }
            }
        }
        obstacles
    }

    /// The desired state in `fleet`'s words. `networks` are port groups, `placements` the places of each zone's VMs.
    ///
    /// # Errors
    /// A resolved value is missing, or the OVF properties of a node cannot be made.
    pub fn wanted(
        &self,
        with: &Keys,
        networks: Vec<String>,
        placements: &BTreeMap<String, Placement>,
    ) -> anyhow::Result<DesiredState> {
        let resolved = self.resolved;
        let digest = resolved.digest.as_deref().and_then(digits_of).context("no image is pinned")?;
        let public = with.deployer.public().context("using the deployer's key")?.to_string();
        let node = |node: &ControlNode| -> anyhow::Result<WantedNode> {
            let mut properties = self.form(node)?;
            properties.insert(keys::DEPLOYER_PUBLIC_KEY.to_owned(), public.clone());
            properties.insert(keys::DEPLOYMENT_SECRET.to_owned(), with.deployment_secret.to_string());
            let placement = placements.get(&node.zone).with_context(|| format!("there is no zone {}", node.zone))?;
            let (drawn, placement) = (Some(node.machine), Some(placement.clone()));
            Ok(WantedNode { name: node.name.clone(), address: node.address, properties, drawn, placement })
        };
        let first = self.nodes.first().context("there are no control-plane nodes")?;
        Ok(DesiredState {
            cluster: self.cluster.metadata.name.clone().unwrap_or_default(),
            nodes: self.nodes.iter().map(node).collect::<anyhow::Result<_>>()?,
            size: Size {
                processors: resolved.processors.context("no processors are pinned")?,
                memory: resolved.memory_mib.context("no memory is pinned")?,
                data_disk: Some(u64::from(resolved.data_disk_gib.context("no data disk is pinned")?) << 30),
            },
            image: Image { digest, name: resolved.image.clone().unwrap_or_default() },
            // The image is in the vCenter already.
            ova: PathBuf::new(),
            networks,
            placement: placements.get(&first.zone).cloned().unwrap_or_default(),
            digests: with.deployer.digests().context("using the deployer's key")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture::{cluster, pool, provider};
    use crate::objects::{AddressRange, Backup, PodSecurity, Proxy, ServiceVips};

    const CARRIED: [&str; 2] = ["1.35", "1.36"];

    fn pinned() -> Resolved {
        Resolved {
            image: Some("kaas-tenant-0.2.0".to_owned()),
            digest: Some(format!("sha256:{}", "0a".repeat(32))),
            processors: Some(2),
            memory_mib: Some(4096),
            data_disk_gib: Some(32),
            endpoint: Some("192.168.10.10".to_owned()),
            service_vips: ["192.168.10.23", "192.168.10.24", "192.168.10.27"].map(str::to_owned).to_vec(),
            ..Resolved::default()
        }
    }

    fn nodes() -> Vec<ControlNode> {
        let node = |number: u8| ControlNode {
            name: format!("shop-cp{number}"),
            address: Ipv4Addr::new(192, 168, 10, 19 + number),
            machine: Uuid::from_u128(number.into()),
            zone: if number == 2 { "b" } else { "a" }.to_owned(),
        };
        (1..=3).map(node).collect()
    }

    fn told<T>(cluster: &TenantCluster, secrets: &Secrets, act: impl FnOnce(&NodeSettings<'_>) -> T) -> T {
        told_with(cluster, pinned(), secrets, act)
    }

    fn told_with<T>(
        cluster: &TenantCluster,
        resolved: Resolved,
        secrets: &Secrets,
        act: impl FnOnce(&NodeSettings<'_>) -> T,
    ) -> T {
        let (nodes, pool) = (nodes(), pool());
        let controllers = ["10.0.0.0/28".to_owned()];
        act(&NodeSettings {
            cluster,
            resolved: &resolved,
            nodes: &nodes,
            pool: &pool.spec,
            secrets,
            controllers: &controllers,
        })
    }

    fn refused(cluster: &TenantCluster) -> Vec<String> {
        refused_with(cluster, pinned())
    }

    fn refused_with(cluster: &TenantCluster, resolved: Resolved) -> Vec<String> {
        let carried = CARRIED.map(str::to_owned);
        let now = SystemTime::UNIX_EPOCH;
        told_with(cluster, resolved, &Secrets::default(), |told| told.obstacles(&carried, now))
            .into_iter()
            .map(|it| it.message)
            .collect()
    }

    #[test]
    fn nodes_are_named_and_spread_over_zones() {
        let (mut cluster, provider) = (cluster(), provider());
        let of = |cluster: &TenantCluster| {
            let machines = machines(cluster, &pinned(), &provider).into_iter();
            machines.map(|machine| (machine.metadata.name.unwrap(), machine.spec.zone)).collect::<Vec<_>>()
        };
        let expected = [("shop-cp1", "a"), ("shop-cp2", "b"), ("shop-cp3", "a")];
        assert_eq!(of(&cluster), expected.map(|(name, zone)| (name.to_owned(), zone.to_owned())));
        cluster.spec.control_plane.zones = vec!["b".to_owned()];
        assert!(of(&cluster).iter().all(|(_, zone)| zone == "b"));
        cluster.spec.control_plane.replicas = 1;
        assert_eq!(of(&cluster), [("shop-cp1".to_owned(), "b".to_owned())]);
        let machine = machines(&cluster, &pinned(), &provider).remove(0);
        assert_eq!(machine.metadata.owner_references.unwrap()[0].uid, crate::decisions::fixture::UID);
        assert_eq!((machine.spec.image.name.as_str(), machine.spec.processors), ("kaas-tenant-0.2.0", 2));
    }

    #[test]
    fn form_covers_the_spec_and_passes_node_checks() {
        let mut whole = cluster();
        let (spec, secret) = (&mut whole.spec, |text: &str| Zeroizing::new(text.to_owned()));
        spec.pod_security = PodSecurity::Restricted;
        spec.add_ons.local_volumes = false;
        spec.backup = Some(Backup {
            every: "24h".to_owned(),
            target: "https://backup.example.com/shop/".to_owned(),
            credentials_ref: Some(Reference::to("shop-backup")),
            recovery_public_key: Some("-----BEGIN PUBLIC KEY-----MCowBQYDK2VuAyEA/DoJm6hfsJqbEyg0JLDi0H2Awpo3L9imdu1DxxLkqDs=-----END PUBLIC KEY-----".to_owned()),
        });
        let site = &mut spec.site;
        site.proxy = Some(Proxy { http: Some("http://proxy.example.com:3128".to_owned()), ..Proxy::default() });
        site.search_domains = vec!["example.com".to_owned()];
        site.registry_mirror = Some("https://registry.example.com".to_owned());
        let secrets = Secrets {
            console_password_hash: Some(secret(
                "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$xepEX7DgsiGhAJPJyekJSrQ8hX9NhEaSi66Ij4USOM2\n",
            )),
            backup: Some((secret("shop"), secret("p@ss/word"))),
            ..Secrets::default()
        };
        let form = told(&whole, &secrets, |told| told.form(&nodes()[1])).unwrap();
        for (key, value) in [
            (keys::ROLE, "tenant-control-plane"),
            (keys::NODE_NAME, "shop-cp2"),
            (keys::ADDRESS, "192.168.10.21/24"),
            (keys::GATEWAY, "192.168.10.1"),
            (keys::DNS_SERVERS, "192.168.10.2"),
            (keys::SEARCH_DOMAINS, "example.com"),
            (keys::NTP_SERVERS, "ntp.example.com"),
            (keys::CLUSTER_NAME, "shop"),
            (keys::CONTROL_NODES, "shop-cp1=192.168.10.20,shop-cp2=192.168.10.21,shop-cp3=192.168.10.22"),
            (keys::API_VIP, "192.168.10.10"),
            (keys::KUBERNETES_VERSION, "1.36"),
            (keys::POD_CIDR, "10.244.0.0/14"),
            (keys::SERVICE_CIDR, "10.96.0.0/16"),
            (keys::POD_SECURITY, "restricted"),
            (keys::CLUSTER_DNS, "true"),
            (keys::LOCAL_VOLUMES, "false"),
            (keys::SERVICE_VIPS, "192.168.10.23-192.168.10.24,192.168.10.27-192.168.10.27"),
            (keys::ADMIN_CIDRS, "192.168.10.0/24,10.0.0.0/28"),
            (keys::SNAPSHOT_TARGET, "https://shop:p%40ss%2Fword@backup.example.com/shop/"),
            (keys::SNAPSHOT_EVERY, "1d"),
            (keys::HTTP_PROXY, "http://proxy.example.com:3128"),
            (keys::REGISTRY_MIRROR, "https://registry.example.com"),
            (keys::VXLAN_PORT, "8472"),
        ] {
            assert_eq!(form.get(key).map(String::as_str), Some(value), "{key}");
        }
        for (key, value) in &form {
            let property = keys::find(key).unwrap_or_else(|| panic!("{key} is no property"));
            assert!(property.need(Role::TenantControlPlane).is_some(), "{key} is not a control node's");
            assert!(property.parse(value).is_ok(), "{key}: {value}");
        }
        assert_eq!(refused(&whole), [""; 0]);
        whole.spec.site.admin_cidrs.clear();
        let form = told(&whole, &secrets, |told| told.form(&nodes()[1])).unwrap();
        assert_eq!(form.get(keys::ADMIN_CIDRS), None, "it stays open to all");
        whole.spec.backup.as_mut().unwrap().every = "6h".to_owned();
        let form = told(&whole, &secrets, |told| told.form(&nodes()[1])).unwrap();
        assert!(form.contains_key(keys::SNAPSHOT_TARGET) && !form.contains_key(keys::SNAPSHOT_EVERY));
    }

    /// [`fields`] has the name of a referenced object. A row with such a field needs another text here.
    #[test]
    fn form_has_no_name_of_a_referenced_object() {
        const NAME: &str = "name-of-an-object";
        let mut cluster = cluster();
        let (every, target) = ("6h".to_owned(), "https://backup.example.com/shop/".to_owned());
        cluster.spec.backup = Some(Backup { every, target, credentials_ref: None, recovery_public_key: None });
        let mut spec = json!(cluster.spec);
        let rows = keys::table().iter().flat_map(|property| property.spec);
        let references: Vec<&str> = rows.copied().filter(|field| field.ends_with("Ref")).collect();
        assert!(references.contains(&"site.consolePasswordRef") && references.contains(&"backup.credentialsRef"));
        for field in &references {
            *field.split('.').fold(&mut spec, |object, name| &mut object[name]) = json!({ "name": NAME });
        }
        cluster.spec = serde_json::from_value(spec).unwrap();
        assert_eq!(json!(cluster.spec).to_string().matches(NAME).count(), references.len(), "{references:?}");
        let secret = |text: &str| Zeroizing::new(text.to_owned());
        let given = Secrets {
            console_password_hash: Some(secret("$y$j9T$salt$hash\n")),
            backup: Some((secret("shop"), secret("word"))),
            ..Secrets::default()
        };
        let form = told(&cluster, &given, |told| told.form(&nodes()[0])).unwrap();
        assert_eq!(form[keys::CONSOLE_PASSWORD_HASH], "$y$j9T$salt$hash");
        assert_eq!(form[keys::SNAPSHOT_TARGET], "https://shop:word@backup.example.com/shop/");
        let without = told(&cluster, &Secrets::default(), |told| told.form(&nodes()[0])).unwrap();
        for (key, value) in form.iter().chain(&without) {
            assert!(!value.contains(NAME), "{key}: {value}");
        }
    }

    #[test]
    fn invalid_properties_are_found_before_the_first_vm() {
        type Change<'a> = &'a dyn Fn(&mut TenantCluster);
        let changes: [(&str, Change<'_>); 4] = [
            ("snapshot-every", &|it| {
                let (every, target) = ("5m".to_owned(), "https://backup.example.com/shop/".to_owned());
                it.spec.backup = Some(Backup { every, target, credentials_ref: None, recovery_public_key: None });
            }),
            ("pod-cidr", &|it| it.spec.network.pods = "192.168.0.0/16".to_owned()),
            ("kubernetes-version", &|it| it.spec.version = "1.37".to_owned()),
            ("registry-mirror", &|it| it.spec.site.registry_mirror = Some("nowhere".to_owned())),
        ];
        assert_eq!(refused(&cluster()), [""; 0]);
        for (key, change) in changes {
            let mut cluster = cluster();
            change(&mut cluster);
            let refused = refused(&cluster);
            assert!(refused.iter().any(|words| words.starts_with(key)), "{key}: {refused:?}");
        }
        let vips = ["192.168.10.9", "192.168.10.10"].map(str::to_owned).to_vec();
        let refused = refused_with(&cluster(), Resolved { service_vips: vips, ..pinned() });
        assert!(
            refused.iter().any(|words| words.starts_with("service-vips")),
            "the endpoint is among them: {refused:?}"
        );
    }

    /// Finding 7 of controller.md: images without this property form clusters with 24, and refuse others.
    #[test]
    fn form_omits_the_default_node_prefix() {
        let of = |prefix: u8| {
            let mut cluster = cluster();
            cluster.spec.network.node_prefix = prefix;
            told(&cluster, &Secrets::default(), |told| told.form(&nodes()[0])).unwrap().remove(keys::NODE_PREFIX)
        };
        assert_eq!((of(24), of(25)), (None, Some("25".to_owned())));
    }

    /// Addresses that the spec names after the first VM are not claimed.
    #[test]
    fn form_has_only_claimed_addresses() {
        let mut changed = cluster();
        let range = AddressRange { first: "192.168.10.200".to_owned(), last: "192.168.10.219".to_owned() };
        changed.spec.network.service_vips =
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
        let form = told(&changed, &Secrets::default(), |told| told.form(&nodes()[0])).unwrap();
        assert_eq!(form[keys::SERVICE_VIPS], "192.168.10.23-192.168.10.24,192.168.10.27-192.168.10.27");
    }

    #[test]
    fn desired_state_places_each_node() {
        let with = Keys {
            deployer: PrivateKey::draw().unwrap(),
            deployment_secret: Zeroizing::new("0f1e2d3c4b5a69788796a5b4c3d2e1f0".to_owned()),
        };
        let placement = |name: &str| Placement { datastore: Some(format!("vsan-{name}")), ..Placement::default() };
        let placements: BTreeMap<_, _> = ["a", "b"].map(|zone| (zone.to_owned(), placement(zone))).into();
        let networks = vec!["VM Network".to_owned()];
        let wanted =
            told(&cluster(), &Secrets::default(), |told| told.wanted(&with, networks.clone(), &placements)).unwrap();
        let size = Size { processors: 2, memory: 4096, data_disk: Some(32 << 30) };
        assert_eq!((wanted.cluster.as_str(), wanted.size, &wanted.networks), ("shop", size, &networks));
        assert_eq!(wanted.image, Image { digest: "0a".repeat(32), name: "kaas-tenant-0.2.0".to_owned() });
        let second = &wanted.nodes[1];
        assert_eq!((second.drawn, &second.placement), (Some(Uuid::from_u128(2)), &Some(placement("b"))));
        let public = with.deployer.public().unwrap().to_string();
        assert_eq!(second.properties.get(keys::DEPLOYER_PUBLIC_KEY), Some(&public));
        let carried = CARRIED.map(str::to_owned);
        let text = |property: &keys::Property| Ok(second.properties.get(property.key).map(String::as_str));
        let roles = Roles::new(vec![Role::TenantControlPlane, Role::Worker]).unwrap();
        let (draft, mut findings) = form::read(&text, &roles, SecretNeed::Needed);
        findings.extend(form::all(&draft, &carried, SystemTime::UNIX_EPOCH));
        assert!(!findings.has_errors(), "{findings:?}");
        let lacking = told(&cluster(), &Secrets::default(), |told| told.wanted(&with, Vec::new(), &BTreeMap::new()));
        assert!(lacking.is_err(), "no zone leads anywhere");
    }
}
