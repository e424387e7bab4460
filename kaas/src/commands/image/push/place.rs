//! Translates a Provider into types of `vsphere` and `fleet`: the session's settings, and the place of shared images. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use controller::objects::{VSphere, Zone};
use fleet::hypervisor::Placement;
use fleet::vcenter::{Library, Site};
use serde_json::Value;
use vsphere::{About, Connect, Secret, Settings, Trust};
use zeroize::Zeroizing;

use crate::control::text;

/// The settings of a session: the Provider's server, with user and password of its Secret.
pub fn connect(described: &VSphere, secret: &Value) -> anyhow::Result<Connect> {
    let value = |key: &str| -> anyhow::Result<Zeroizing<String>> {
        let name = text(secret, "/metadata/name");
        let bytes = BASE64_STANDARD.decode(text(secret, &format!("/data/{key}"))).map(Zeroizing::new);
        let bytes = bytes.with_context(|| format!("reading {key} of the Secret {name}"))?;
        let value = std::str::from_utf8(&bytes).with_context(|| format!("reading {key} of the Secret {name}"))?;
        // A file may end with a line break. It is not part of a name or a password.
        let value = value.trim_end_matches(['\r', '\n']);
        ensure!(!value.is_empty(), "the Secret {name} has no {key}");
        Ok(Zeroizing::new(value.to_owned()))
    };
    let trust = match (&described.ca_bundle, &described.thumbprint) {
        (Some(pem), _) => Trust::Certificates(pem.clone()),
        (None, Some(thumbprint)) => Trust::Thumbprint(thumbprint.parse().context("the Provider's thumbprint")?),
        (None, None) => Trust::System,
    };
    Ok(Connect {
        address: described.server.clone(),
        trust,
        user: value("username")?.to_string(),
        password: Secret::new(value("password")?.as_str()),
        settings: Settings {
            calls: described.requests as usize,
            task_limit: Duration::from_secs(u64::from(described.task_minutes) * 60),
            ..Settings::default()
        },
    })
}

/// The library of images that the clusters of a Provider share, and the site of their templates. The library's records
/// are on the datastore of the first zone. Fails if the Provider has no zone, or the first one names no datastore.
pub fn images(described: &VSphere, about: &About) -> anyhow::Result<(Library, Site)> {
    let zone = described.zones.first().context("the Provider has no zone")?;
    let datastore = zone.datastore.clone().context("the Provider's first zone names no datastore")?;
    let templates = described.templates_folder.as_ref().unwrap_or(&described.folder);
    let library = Library::of(about, &described.datacenter, templates, &datastore);
    let site = Site {
        datacenter: described.datacenter.clone(),
        folder: templates.clone(),
        templates: Some(templates.clone()),
        resource_pool: pool(zone),
        datastore,
        networks: described.networks.iter().take(1).map(|network| network.port_group.clone()).collect(),
        ..Site::default()
    };
    Ok((library, site))
}

/// Each datastore of a Provider's zones once, with a placement on it.
pub fn datastores(described: &VSphere) -> Vec<(String, Placement)> {
    let mut seen = BTreeSet::new();
    let of = |zone: &Zone| {
        let datastore = zone.datastore.clone()?;
        let placement =
            Placement { datastore: Some(datastore.clone()), resource_pool: Some(pool(zone)), ..Placement::default() };
        Some((datastore, placement))
    };
    described.zones.iter().filter_map(of).filter(|(datastore, _)| seen.insert(datastore.clone())).collect()
}

/// The path of a zone's resource pool. The root pool of a cluster is called `Resources`. The cluster's own path means that
/// pool.
fn pool(zone: &Zone) -> String {
    let topmost = || zone.cluster.clone();
    zone.resource_pool.as_ref().map_or_else(topmost, |pool| format!("{}/Resources/{pool}", zone.cluster))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(zones: Value) -> VSphere {
        serde_json::from_value(json!({
            "server": "vcenter.example.com", "datacenter": "DC1", "folder": "tenants", "zones": zones,
            "networks": [{"name": "blue", "portGroup": "VM Network 12", "addressing": "DHCP"},
                         {"name": "red", "portGroup": "VM Network 13", "addressing": "DHCP"}],
        }))
        .unwrap()
    }

    #[test]
    fn images_are_imported_once_per_datastore() {
        let zone = |name: &str, datastore: &str, pool: Option<&str>| json!({"name": name, "cluster": "c1", "datastore": datastore, "resourcePool": pool});
        let described =
            described(json!([zone("a", "pod/one", None), zone("b", "two", Some("p")), zone("c", "pod/one", None)]));
        let about = About {
            full_name: "vCenter".to_owned(),
            api_type: "VirtualCenter".to_owned(),
            api_version: "8.0.3.0".to_owned(),
            instance_uuid: "a".to_owned(),
        };
        let (library, site) = images(&described, &about).unwrap();
        assert_eq!(library, Library::of(&about, "DC1", "tenants", "pod/one"));
        assert_eq!((site.folder.as_str(), site.resource_pool.as_str(), site.networks.len()), ("tenants", "c1", 1));
        let datastores = datastores(&described);
        let pools: Vec<_> =
            datastores.iter().map(|(name, placement)| (name.as_str(), placement.resource_pool.as_deref())).collect();
        assert_eq!(pools, [("pod/one", Some("c1")), ("two", Some("c1/Resources/p"))]);
        assert!(images(&VSphere { zones: Vec::new(), ..described }, &about).is_err());
    }

    #[test]
    fn account_without_user_or_password_is_rejected() {
        let secret = |user: &str, password: &str| {
            json!({"metadata": {"name": "dc1"}, "data": {"username": BASE64_STANDARD.encode(user),
                                                         "password": BASE64_STANDARD.encode(password)}})
        };
        let described = described(json!([]));
        assert_eq!(connect(&described, &secret("kaas@vsphere.local\n", "x\n")).unwrap().user, "kaas@vsphere.local");
        for wrong in [secret("", "x"), secret("kaas", "\n"), json!({"metadata": {"name": "dc1"}})] {
            let refused = format!("{:#}", connect(&described, &wrong).err().unwrap());
            assert!(refused.contains("the Secret dc1 has no "), "{refused}");
        }
        let odd = VSphere { thumbprint: Some("zz".to_owned()), ..described };
        assert!(connect(&odd, &secret("kaas", "x")).is_err());
    }
}
