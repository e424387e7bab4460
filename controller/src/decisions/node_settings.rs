//! The fields of a spec that control-plane nodes are created with, and which of them have changed since: changes do not reach
//! existing nodes. Does not know how the settings reach the nodes; see `control_plane.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;

use contract::properties as keys;
use contract::role::Role;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::objects::{AddOns, Backup, Network, Proxy, Reference, ServiceVips, Site, TenantClusterSpec};

/// The fields of a spec that control-plane nodes are created with: field, OVF property and value. Defaults from their IPPool do
/// not count, nor the content of Secrets.
fn fields(spec: &TenantClusterSpec) -> Vec<(&'static str, &'static str, Value)> {
    // All fields are listed, so that a new field does not compile until it is classified here.
    let TenantClusterSpec {
        // These cannot change.
        provider_ref: _,
        restore: _,
        // These are changed by Operations, or a condition reports that they are not.
        version: _,
        image: _,
        control_plane: _,
        // These are settings of the controller itself.
        upgrade: _,
        maintenance: _,
        paused: _,
        network,
        site,
        pod_security,
        add_ons,
        backup,
    } = spec;
    let Network { name: _, endpoint: _, pods: _, services: _, vxlan_port: _, service_vips } = network;
    let Site {
        ntp_servers,
        dns_servers,
        search_domains,
        proxy,
        extra_ca_certificates,
        registry_mirror,
        ssh_authorized_keys,
        console_password_ref,
        admin_cidrs,
    } = site;
    let Proxy { http, https, no_proxy } = proxy.clone().unwrap_or_default();
    let AddOns { cluster_dns, cluster_metrics, local_volumes } = add_ons;
    let (ranges, pool, count) = match service_vips {
        Some(ServiceVips { ranges, pool_ref, count }) => (json!(ranges), named(pool_ref.as_ref()), json!(count)),
        None => (Value::Null, Value::Null, Value::Null),
    };
    let (target, login, recovery) = match backup {
        // See `pace`.
        Some(Backup { every: _, target, credentials_ref, recovery_public_key }) => {
            (json!(target), named(credentials_ref.as_ref()), json!(recovery_public_key))
        }
        None => (Value::Null, Value::Null, Value::Null),
    };
    vec![
        ("addons.clusterDns", keys::CLUSTER_DNS, json!(cluster_dns)),
        ("addons.clusterMetrics", keys::CLUSTER_METRICS, json!(cluster_metrics)),
        ("addons.localVolumes", keys::LOCAL_VOLUMES, json!(local_volumes)),
        ("backup.every", keys::SNAPSHOT_EVERY, json!(pace(backup.as_ref()))),
        ("backup.target", keys::SNAPSHOT_TARGET, target),
        ("backup.credentialsRef", keys::SNAPSHOT_TARGET, login),
        ("backup.recoveryPublicKey", keys::RECOVERY_PUBLIC_KEY, recovery),
        ("network.serviceVIPs.ranges", keys::SERVICE_VIPS, ranges),
        ("network.serviceVIPs.poolRef", keys::SERVICE_VIPS, pool),
        ("network.serviceVIPs.count", keys::SERVICE_VIPS, count),
        ("podSecurity", keys::POD_SECURITY, json!(pod_security)),
        ("site.adminCIDRs", keys::ADMIN_CIDRS, json!(admin_cidrs)),
        ("site.consolePasswordRef", keys::CONSOLE_PASSWORD_HASH, named(console_password_ref.as_ref())),
        ("site.dnsServers", keys::DNS_SERVERS, json!(dns_servers)),
        ("site.extraCACertificates", keys::EXTRA_CA_CERTIFICATES, json!(extra_ca_certificates)),
        ("site.ntpServers", keys::NTP_SERVERS, json!(ntp_servers)),
        ("site.proxy.http", keys::HTTP_PROXY, json!(http)),
        ("site.proxy.https", keys::HTTPS_PROXY, json!(https)),
        ("site.proxy.noProxy", keys::NO_PROXY, json!(no_proxy)),
        ("site.registryMirror", keys::REGISTRY_MIRROR, json!(registry_mirror)),
        ("site.searchDomains", keys::SEARCH_DOMAINS, json!(search_domains)),
        ("site.sshAuthorizedKeys", keys::SSH_AUTHORIZED_KEYS, json!(ssh_authorized_keys)),
    ]
}

/// The interval of snapshots as control-plane nodes are configured, in its canonical form. `None` for the nodes' default. So a
/// cluster from before the setting matches its nodes, and an image without the property gets none.
pub(super) fn pace(backup: Option<&Backup>) -> Option<String> {
    let property = keys::find(keys::SNAPSHOT_EVERY)?;
    let period = |text: &str| property.parse(text).ok().and_then(|value| keys::Period::try_from(value).ok());
    let asked = &backup?.every;
    // Malformed text is passed on: the form check rejects it.
    let Some(every) = period(asked) else { return Some(asked.clone()) };
    let default = property.default(Role::TenantControlPlane).and_then(period);
    (default != Some(every)).then(|| every.to_string())
}

fn named(reference: Option<&Reference>) -> Value {
    json!(reference.map(|reference| &reference.name))
}

/// The settings that control-plane nodes are created with, by field: the SHA-256 of each value. Unset fields are left out.
pub fn node_settings_hashes(spec: &TenantClusterSpec) -> BTreeMap<String, String> {
    let is_given = |value: &Value| !value.is_null() && *value != json!([]);
    let given = fields(spec).into_iter().filter(|(_, _, value)| is_given(value));
    given.map(|(field, _, value)| (field.to_owned(), hash(&value))).collect()
}

fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    digest.iter().fold("sha256:".to_owned(), |mut hash, byte| {
        let _ = write!(hash, "{byte:02x}");
        hash
    })
}

/// The fields that differ from the settings that control-plane nodes were created with, and what the operator can do. `None` if
/// no field differs.
pub fn unapplied_settings(spec: &TenantClusterSpec, told: &BTreeMap<String, String>) -> Option<String> {
    let (now, mut by_hand, mut never) = (node_settings_hashes(spec), Vec::new(), Vec::new());
    for (field, key, _) in fields(spec) {
        if now.get(field) == told.get(field) {
            continue;
        }
        let is_changeable = keys::find(key).is_some_and(|property| property.changeable);
        let list = if is_changeable { &mut by_hand } else { &mut never };
        list.push(field);
    }
    let is_of_workers = by_hand.iter().any(|field| field.starts_with("site."));
    let mut words = vec!["control-plane nodes use the settings that they were created with".to_owned()];
    if !by_hand.is_empty() {
        let fields = by_hand.join(", ");
        words.push(format!(
            "{fields}: change it on each of them with `kaas-agent configure`, which this condition does not see"
        ));
    }
    if is_of_workers {
        words.push("workers that are created from now on have it, existing workers do not".to_owned());
    }
    if !never.is_empty() {
        words.push(format!("{}: it stays for the cluster's life", never.join(", ")));
    }
    (words.len() > 1).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::{AddressRange, PodSecurity};

    type Edit = fn(&mut TenantClusterSpec);

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn backup(spec: &mut TenantClusterSpec) -> &mut Backup {
        let (every, target) = ("6h".to_owned(), "https://backup.example.com/shop/".to_owned());
        spec.backup.get_or_insert(Backup { every, target, credentials_ref: None, recovery_public_key: None })
    }

    fn whole() -> TenantClusterSpec {
        let mut spec = cluster().spec;
        backup(&mut spec);
        spec
    }

    #[test]
    fn message_names_exactly_the_changed_field() {
        let spec = whole();
        let pinned = node_settings_hashes(&spec);
        assert_eq!(unapplied_settings(&spec, &pinned), None);
        let edits: [(&str, Edit); 22] = [
            ("addons.clusterDns", |it| it.add_ons.cluster_dns = false),
            ("addons.clusterMetrics", |it| it.add_ons.cluster_metrics = false),
            ("addons.localVolumes", |it| it.add_ons.local_volumes = false),
            ("backup.every", |it| backup(it).every = "15m".to_owned()),
            ("backup.target", |it| backup(it).target = "https://elsewhere.example.com/".to_owned()),
            ("backup.credentialsRef", |it| backup(it).credentials_ref = Some(Reference::to("shop-backup"))),
            ("backup.recoveryPublicKey", |it| backup(it).recovery_public_key = text("key")),
            ("network.serviceVIPs.ranges", |it| {
                let range = AddressRange { first: "192.168.10.200".to_owned(), last: "192.168.10.201".to_owned() };
                it.network.service_vips.as_mut().unwrap().ranges = Some(vec![range]);
            }),
            ("network.serviceVIPs.poolRef", |it| it.network.service_vips.as_mut().unwrap().pool_ref = None),
            ("network.serviceVIPs.count", |it| it.network.service_vips.as_mut().unwrap().count = Some(3)),
            ("podSecurity", |it| it.pod_security = PodSecurity::Restricted),
            ("site.adminCIDRs", |it| it.site.admin_cidrs = vec!["192.168.11.0/24".to_owned()]),
            ("site.consolePasswordRef", |it| it.site.console_password_ref = Some(Reference::to("console"))),
            ("site.dnsServers", |it| it.site.dns_servers = vec!["192.168.10.3".to_owned()]),
            ("site.extraCACertificates", |it| it.site.extra_ca_certificates = text("PEM")),
            ("site.ntpServers", |it| it.site.ntp_servers.clear()),
            ("site.proxy.http", |it| it.site.proxy.get_or_insert_default().http = text("http://proxy.example.com")),
            ("site.proxy.https", |it| it.site.proxy.get_or_insert_default().https = text("http://proxy.example.com")),
            ("site.proxy.noProxy", |it| {
                it.site.proxy.get_or_insert_default().no_proxy = vec![".example.com".to_owned()];
            }),
            ("site.registryMirror", |it| it.site.registry_mirror = text("https://registry.example.com")),
            ("site.searchDomains", |it| it.site.search_domains = vec!["example.com".to_owned()]),
            ("site.sshAuthorizedKeys", |it| it.site.ssh_authorized_keys.clear()),
        ];
        let all: Vec<&str> = fields(&spec).iter().map(|(field, ..)| *field).collect();
        assert_eq!(edits.iter().map(|(field, _)| *field).collect::<Vec<_>>(), all);
        for (field, edit) in edits {
            let mut changed = spec.clone();
            edit(&mut changed);
            let words = unapplied_settings(&changed, &pinned).unwrap_or_else(|| panic!("{field} is passed over"));
            let is_named = |field: &str| words.contains(&format!(" {field}:"));
            assert!(is_named(field), "{field}: {words}");
            assert!(all.iter().all(|other| *other == field || !is_named(other)), "{field}: {words}");
            let property = keys::find(fields(&spec).iter().find(|it| it.0 == field).unwrap().1).unwrap();
            assert_eq!(words.contains("`kaas-agent configure`"), property.changeable, "{field}: {words}");
        }
    }

    /// Clusters of an earlier version have a backup without an interval, and images of that version have no property for it.
    #[test]
    fn default_snapshot_interval_is_left_out() {
        let mut spec = whole();
        let pinned = node_settings_hashes(&spec);
        assert!(pinned.contains_key("backup.target") && !pinned.contains_key("backup.every"));
        let read: Backup = serde_json::from_value(json!({"target": "https://backup.example.com/shop/"})).unwrap();
        assert_eq!(Some(&read), spec.backup.as_ref(), "an object that says no pace has the default");
        for every in ["6h", "360m"] {
            backup(&mut spec).every = every.to_owned();
            assert_eq!((pace(spec.backup.as_ref()), unapplied_settings(&spec, &pinned)), (None, None), "{every}");
        }
        for (every, told) in
            [("15m", "15m"), ("24h", "1d"), ("1d", "1d"), ("168h", "7d"), ("5m", "5m"), ("soon", "soon")]
        {
            backup(&mut spec).every = every.to_owned();
            assert_eq!(pace(spec.backup.as_ref()).as_deref(), Some(told), "{every}");
        }
        assert_eq!(pace(None), None);
    }

    #[test]
    fn controller_settings_are_ignored() {
        let spec = whole();
        let mut changed = spec.clone();
        (changed.paused, changed.upgrade.gate_seconds) = (true, 60);
        changed.maintenance.window = text("Sat 02:00-06:00");
        (changed.image, changed.version) = (text("kaas-tenant-0.3.0"), "1.37".to_owned());
        assert_eq!(unapplied_settings(&changed, &node_settings_hashes(&spec)), None);
    }

    /// If a hash of recorded settings changed, each cluster would report a difference that does not exist.
    #[test]
    fn hashes_of_recorded_settings_stay_the_same() {
        let told = node_settings_hashes(&cluster().spec);
        for (field, hash) in [
            ("podSecurity", "sha256:df1912786a1008385da3992614e8d95a5a0a0e48fa3a10d933169148f9e158a3"),
            ("site.ntpServers", "sha256:d0ff5b30c776a0166a39beb38acff66b58272adf87d3db4ceed370a177229e39"),
            ("addons.clusterDns", "sha256:b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b"),
        ] {
            assert_eq!(told[field], hash, "{field}");
        }
        assert!(!told.contains_key("site.dnsServers"), "what is not said is not pinned");
    }
}
