//! The fields of a spec that become settings of nodes, and which of them nodes do not have yet. Does not know how the settings reach
//! new nodes (`control_plane.rs`) or existing ones (`settings_plan.rs`).

use std::collections::BTreeMap;
use std::fmt::Write;

use contract::properties::{self as keys, Property};
use contract::role::Role;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::objects::{Backup, TenantClusterSpec};

/// The fields that name Secrets.
const SECRETS: [&str; 2] = ["backup.credentialsRef", "site.consolePasswordRef"];

/// The fields of a spec that become settings of nodes: field, OVF property and value. The table of properties names the fields. A
/// reference is the name of its object. Defaults from their IPPool do not count.
pub(super) fn fields(spec: &TenantClusterSpec) -> Vec<(&'static str, &'static Property, Value)> {
    let whole = json!(spec);
    let value = |field: &str| {
        let found = field.split('.').fold(&whole, |object, name| &object[name]);
        found.get("name").unwrap_or(found).clone()
    };
    let mut fields = Vec::new();
    for property in keys::table() {
        fields.extend(property.spec.iter().map(|&field| match property.key {
            keys::SNAPSHOT_EVERY => (field, property, json!(pace(spec.backup.as_ref()))),
            _ => (field, property, value(field)),
        }));
    }
    fields
}

/// The interval of snapshots as control-plane nodes are configured, in its canonical form. `None` for the nodes' default, which
/// is neither recorded nor in the form.
fn pace(backup: Option<&Backup>) -> Option<String> {
    let property = keys::find(keys::SNAPSHOT_EVERY)?;
    let period = |text: &str| property.parse(text).ok().and_then(|value| keys::Period::try_from(value).ok());
    let asked = &backup?.every;
    // Malformed text is passed on: the form check rejects it.
    let Some(every) = period(asked) else { return Some(asked.clone()) };
    let default = property.default(Role::TenantControlPlane).and_then(period);
    (default != Some(every)).then(|| every.to_string())
}

/// The settings of control-plane nodes by field: the SHA-256 of each value. Unset fields are left out. `versions` are those of the
/// named Secrets, and have separate entries: a change of their content is a change of the setting. The field's own entry stays the
/// name of the Secret. The status does not show their content.
pub fn node_settings_hashes(spec: &TenantClusterSpec, versions: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_given = |value: &Value| !value.is_null() && *value != json!([]);
    let given = fields(spec).into_iter().filter(|(_, _, value)| is_given(value));
    let mut hashes: BTreeMap<String, String> = BTreeMap::new();
    for (field, _, value) in given {
        let version = value.as_str().and_then(|name| versions.get(name)).filter(|_| SECRETS.contains(&field));
        hashes.extend(version.map(|version| (content(field), hash(&json!(version)))));
        hashes.insert(field.to_owned(), hash(&value));
    }
    hashes
}

/// The entry for the version of the Secret that a field names.
fn content(field: &str) -> String {
    format!("{field}.content")
}

fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    digest.iter().fold("sha256:".to_owned(), |mut hash, byte| {
        let _ = write!(hash, "{byte:02x}");
        hash
    })
}

/// The fields whose values nodes do not have yet. `recorded` are the hashes of the values that they have. None if no settings are
/// recorded, because no node exists yet. An earlier version recorded no versions of Secrets: they are no change.
pub fn pending_settings(
    spec: &TenantClusterSpec,
    versions: &BTreeMap<String, String>,
    recorded: &BTreeMap<String, String>,
) -> Vec<&'static str> {
    let now = node_settings_hashes(spec, versions);
    let is_other = |entry: &str| now.get(entry) != recorded.get(entry);
    let has_other_content = |content: &str| recorded.contains_key(content) && is_other(content);
    let differs = |field: &&str| !recorded.is_empty() && (is_other(field) || has_other_content(&content(field)));
    fields(spec).into_iter().map(|(field, ..)| field).filter(differs).collect()
}

/// All fields that become settings of nodes.
pub fn setting_fields() -> Vec<String> {
    keys::table().iter().flat_map(|property| property.spec.iter()).map(|field| (*field).to_owned()).collect()
}

/// The recorded hashes once nodes have the present values of these fields. `now` are the hashes of all present values.
pub fn with_applied(
    recorded: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    fields: &[String],
) -> BTreeMap<String, String> {
    let is_of = |entry: &str| fields.iter().any(|field| entry == field || entry == content(field));
    let kept = recorded.iter().filter(|(entry, _)| !is_of(entry));
    let applied = now.iter().filter(|(entry, _)| is_of(entry));
    kept.chain(applied).map(|(entry, hash)| (entry.clone(), hash.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::{AddressRange, PodSecurity, Reference, TenantCluster};

    type Edit = fn(&mut TenantClusterSpec);

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn backup(spec: &mut TenantClusterSpec) -> &mut Backup {
        let (every, target) = ("6h".to_owned(), "https://backup.example.com/shop/".to_owned());
        spec.backup.get_or_insert(Backup { every, target, credentials_ref: None, recovery_public_key: None })
    }

    fn hashes(spec: &TenantClusterSpec) -> BTreeMap<String, String> {
        node_settings_hashes(spec, &BTreeMap::new())
    }

    fn pending(spec: &TenantClusterSpec, recorded: &BTreeMap<String, String>) -> Vec<&'static str> {
        pending_settings(spec, &BTreeMap::new(), recorded)
    }

    fn whole() -> TenantClusterSpec {
        let mut spec = cluster().spec;
        backup(&mut spec);
        spec
    }

    /// The fields of a schema that have none below them.
    fn leaves(path: &str, schema: &Value, found: &mut Vec<String>) {
        match schema["properties"].as_object() {
            Some(below) => below.iter().for_each(|(name, schema)| leaves(&format!("{path}.{name}"), schema, found)),
            None => found.push(path.trim_start_matches('.').to_owned()),
        }
    }

    /// Otherwise a new field could reach no node without a message.
    #[test]
    fn each_field_of_a_spec_is_classified() {
        const OTHERS: [&str; 14] = [
            // These cannot change.
            "providerRef",
            "restore",
            "network.name",
            "network.endpoint",
            "network.pods",
            "network.nodePrefix",
            "network.services",
            "network.vxlanPort",
            // Operations change these, or a condition reports that they do not.
            "version",
            "image",
            "controlPlane",
            // These are settings of the controller itself.
            "upgrade",
            "maintenance",
            "paused",
        ];
        let (definition, spec, mut all) = (json!(TenantCluster::crd()), whole(), Vec::new());
        leaves("", &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut all);
        let told = fields(&spec).into_iter().map(|(field, ..)| field);
        let known: Vec<&str> = told.chain(OTHERS).collect();
        let is_in = |field: &str, known: &str| field == known || field.starts_with(&format!("{known}."));
        for field in &all {
            assert!(known.iter().any(|known| is_in(field, known)), "{field}");
        }
        for known in known {
            assert!(all.iter().any(|field| is_in(field, known)), "{known}");
        }
    }

    #[test]
    fn exactly_the_changed_field_is_pending() {
        let spec = whole();
        let pinned = hashes(&spec);
        assert_eq!(pending(&spec, &pinned), [""; 0]);
        assert!(fields(&spec).iter().all(|(_, property, _)| property.changeable), "nodes can get it while they run");
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
        let all: BTreeSet<&str> = fields(&spec).iter().map(|(field, ..)| *field).collect();
        assert_eq!(edits.iter().map(|(field, _)| *field).collect::<BTreeSet<_>>(), all);
        for (field, edit) in edits {
            let mut changed = spec.clone();
            edit(&mut changed);
            assert_eq!(pending(&changed, &pinned), [field]);
            assert_eq!(pending(&changed, &hashes(&changed)), [""; 0], "{field}");
        }
    }

    // Finding 14 of controller.md: a changed content of a named Secret was never noticed.
    #[test]
    fn version_of_a_named_secret_counts() {
        let mut spec = whole();
        spec.site.console_password_ref = Some(Reference::to("console"));
        let of = |version: &str| -> BTreeMap<String, String> { [("console".to_owned(), version.to_owned())].into() };
        let pinned = node_settings_hashes(&spec, &of("1"));
        assert_eq!(pending_settings(&spec, &of("1"), &pinned), [""; 0]);
        assert_eq!(pending_settings(&spec, &of("2"), &pinned), ["site.consolePasswordRef"]);
        // Otherwise all clusters with a Secret would change their nodes after an upgrade of the controller.
        assert_eq!(pending_settings(&spec, &of("1"), &hashes(&spec)), [""; 0], "of an earlier version");
    }

    // A change of one field gave nodes all other fields too, and undid settings made by hand.
    #[test]
    fn only_changed_fields_are_recorded() {
        let (spec, mut changed) = (whole(), whole());
        changed.pod_security = PodSecurity::Restricted;
        changed.site.ntp_servers.clear();
        changed.backup = None;
        let (recorded, now) = (hashes(&spec), hashes(&changed));
        let applied = with_applied(&recorded, &now, &["podSecurity".to_owned(), "backup.target".to_owned()]);
        assert_eq!(pending(&changed, &applied), ["site.ntpServers"]);
        assert_eq!(with_applied(&recorded, &now, &setting_fields()), now);
        let all: BTreeSet<String> = fields(&spec).iter().map(|(field, ..)| (*field).to_owned()).collect();
        assert_eq!(setting_fields().into_iter().collect::<BTreeSet<_>>(), all);
    }

    /// A backup without an interval has the nodes' default.
    #[test]
    fn default_snapshot_interval_is_left_out() {
        let mut spec = whole();
        let pinned = hashes(&spec);
        assert!(pinned.contains_key("backup.target") && !pinned.contains_key("backup.every"));
        let read: Backup = serde_json::from_value(json!({"target": "https://backup.example.com/shop/"})).unwrap();
        assert_eq!(Some(&read), spec.backup.as_ref(), "an object that says no pace has the default");
        for every in ["6h", "360m"] {
            backup(&mut spec).every = every.to_owned();
            assert_eq!((pace(spec.backup.as_ref()), pending(&spec, &pinned)), (None, Vec::new()), "{every}");
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
    fn controller_settings_and_unrecorded_settings_are_ignored() {
        let spec = whole();
        let mut changed = spec.clone();
        (changed.paused, changed.upgrade.gate_seconds) = (true, 60);
        changed.maintenance.window = text("Sat 02:00-06:00");
        (changed.image, changed.version) = (text("kaas-tenant-0.3.0"), "1.37".to_owned());
        assert_eq!(pending(&changed, &hashes(&spec)), [""; 0]);
        changed.pod_security = PodSecurity::Privileged;
        assert_eq!(pending(&changed, &BTreeMap::new()), [""; 0]);
    }

    /// If a hash of recorded settings changed, each cluster would report a difference that does not exist.
    #[test]
    fn hashes_of_recorded_settings_stay_the_same() {
        let told = hashes(&cluster().spec);
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
