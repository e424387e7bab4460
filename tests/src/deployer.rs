//! The deployer's client meets the agent's endpoint: both halves of the way in, without a VM between them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::SystemTime;

use agent::cluster::pki::CertificateAuthorities;
use agent::cluster::records::{Progress, Records};
use agent::intake::config::Config;
use agent::node::endpoint::Endpoint;
use agent::status::{Reporter, Status};
use contract::deployer::{Fingerprint, Fingerprints, PrivateKey};
use contract::secret::Secret;
use fleet::nodes::{Client, Deployer, DeployerError, Method};
use serde_json::json;

/// A node at an address that no other run of the tests has.
fn config(key: Option<&PrivateKey>) -> (Config, Ipv4Addr) {
    let low = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | low[2] & 31, low[3], 9);
    let config = json!({
        "role": "control-plane",
        "cluster": {
            "name": "lab", "control_nodes": [{"name": "cp1", "address": address}], "virtual_address": null,
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "vxlan_port": 8472, "kubernetes_minor": "1.36",
            "pod_security": "baseline", "add_ons": {},
        },
        "node": {
            "name": "cp1", "interfaces": [{"mac": null, "network": null, "address": format!("{address}/8"), "gateway": null}],
            "dns_servers": [], "search_domains": [], "ntp_servers": [], "ssh_authorized_keys": [],
            "console_password_hash": null, "proxy": null, "extra_ca_certificates": [], "registry_mirror": null,
            "snapshot_every": 360, "deployer_public_key": key.map(|key| key.public().unwrap().to_string()),
        },
        "timeout_factor": 1,
    });
    (serde_json::from_value(config).unwrap(), address)
}

/// The endpoint of a formed node below `root`, and what its hypervisor shows.
fn formed(root: &Path, config: &Config) -> (Endpoint, Fingerprints) {
    let now = SystemTime::now();
    CertificateAuthorities::make(now).unwrap().ensure(&root.join("etc/kubernetes/pki")).unwrap();
    let records = Records::new(root);
    records.save_config(config, &Secret::new("5ec4e7".repeat(6))).unwrap();
    records.save_progress(Progress { formed: true, ..Progress::default() }).unwrap();
    let reporter = Reporter::new(root, Status::default());
    let endpoint = Endpoint::new(root, reporter.clone());
    endpoint.open(config.control_plane().unwrap(), now).unwrap();
    (endpoint, reporter.status().fingerprints.unwrap())
}

#[tokio::test]
async fn deployer_is_admitted_until_the_key_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let key = PrivateKey::draw().unwrap();
    let (config, node) = config(Some(&key));
    let (_endpoint, shown) = formed(root.path(), &config);
    let deployer = Deployer::new(key);
    let credentials = deployer.credentials(node, &shown).await.unwrap();
    let client = Client::new(&credentials).unwrap();
    let asked = async || client.ask_node(node, Method::GET, "/v1/status", None).await.unwrap().status;
    assert_eq!(asked().await, 200);

    // The deployer accepts no other endpoint as the node, and no node of another cluster.
    let other = Fingerprint::of(b"another one");
    for wrong in [Fingerprints { endpoint: other, ..shown }, Fingerprints { ca: other, ..shown }] {
        assert!(deployer.credentials(node, &wrong).await.is_err());
    }
    let stranger = Deployer::new(PrivateKey::draw().unwrap());
    let code = async |deployer: &Deployer| match deployer.credentials(node, &shown).await.unwrap_err() {
        DeployerError::Refused { refused, .. } => refused.code,
        DeployerError::Failed(error) => panic!("{error:#}"),
    };
    assert_eq!(code(&stranger).await, "deployer.other-key");

    Records::new(root.path()).update_config(&self::config(None).0, None).unwrap();
    assert_eq!(code(&deployer).await, "deployer.no-key");
    assert_eq!(asked().await, 403, "the certificate is worthless now");
}
