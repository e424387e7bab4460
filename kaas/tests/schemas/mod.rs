//! The JSON output of commands matches the schemas of the reference.

use std::collections::BTreeSet;
use std::fs;

use contract::codes;
use contract::configure::{ConfigureRefusal, Configured};
use contract::deployer::Issued;
use contract::finding::Findings;
use contract::node::Node;
use kaas::commands::schemas::schemas;
use serde_json::{Value, json};
use testbed::{Appliance, few_properties, off_schema};

use crate::{CREATE, with_shop};

/// Schemas whose samples are in other tests, each with the source of the test. Their outputs need nodes or a vCenter, or the
/// sample is a by-product of that test.
static IN_OTHER_TESTS: [(&str, &str); 17] = [
    ("control-adopt", include_str!("../../src/commands/upgrade/adopt.rs")),
    ("control-backup", include_str!("../../src/commands/backup.rs")),
    ("control-certificate", include_str!("../../src/commands/upgrade/certificate.rs")),
    ("control-deletion", include_str!("../../src/commands/control/deployment/confirm.rs")),
    ("control-outcome", include_str!("../../src/commands/control/deployment/tests.rs")),
    ("control-plan", include_str!("../../src/commands/control/deployment/tests.rs")),
    ("control-replacement", include_str!("../../src/commands/control/deployment/replace.rs")),
    ("control-status", include_str!("../../src/commands/control/deployment/tests.rs")),
    ("kubeconfig", include_str!("../cluster.rs")),
    ("provider-probe", include_str!("../../../fleet/src/vcenter/tests/probe.rs")),
    ("upgrade-abandoned-unread", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
    ("upgrade-kubernetes", include_str!("../../src/commands/upgrade/mod.rs")),
    ("upgrade-kubernetes-plan", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
    ("upgrade-plan", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
    ("upgrade-preview", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
    ("upgrade-preview-unread", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
    ("upgrade-status", include_str!("../../../fleet/src/upgrade/tests/schemas.rs")),
];

/// Checks an output against the schema of this name.
#[track_caller]
pub fn fits(name: &str, value: &Value) {
    let all = schemas();
    let schema = all.iter().find(|schema| schema.name == name).unwrap_or_else(|| panic!("{name} has no schema"));
    assert_eq!(off_schema(value, schema.schema.as_value()), [""; 0], "{name}: {value:#}");
}

#[test]
fn json_outputs_match_their_schemas() {
    let bed = with_shop();
    bed.kept().put("providers", "", "dc1", json!({}));
    bed.kept().put("tenants", "", "blue", json!({"spec": {"namespaces": ["team-blue"]}}));
    bed.kept().put("nodeimages", "", "kaas-tenant-0.2.0", json!({"spec": {"digest": "sha256:0a"}}));
    let (name, full_version) = ("kaas-control-plane", "0.2.0+bbbbbbb.etcd-3.6.0");
    let ova = Appliance { name, full_version, properties: few_properties(), extra_config: Vec::new(), signer: None };
    ova.write(&bed.path(""));
    bed.file("disk.raw", &"x".repeat(64 << 10));
    let snapshot = include_bytes!("../../src/commands/recovery_key/fixtures/snapshot.db");
    fs::write(bed.path("snapshot.db"), snapshot).unwrap();
    bed.file("opens.pem", include_str!("../../../contract/src/recovery/fixtures/key.pem"));
    let (create, support) = (format!("{CREATE} --dry-run"), format!("support --to-file s.tar.gz --port {}", bed.port));
    let samples = [
        ("version", "version"),
        ("explain", "explain disk.foreign"),
        ("explain", "explain"),
        ("cluster", "cluster get shop -n team-blue"),
        ("cluster-list", "cluster get -n team-blue"),
        ("cluster-tree", "cluster describe shop -n team-blue"),
        ("dry-run", "pool scale shop-workers 3 -n team-blue --dry-run"),
        ("dry-run", "pool delete shop-workers -n team-blue --dry-run"),
        ("dry-run", "image delete kaas-tenant-0.2.0 --dry-run"),
        ("image-list", "image list"),
        ("pool-list", "pool list -n team-blue"),
        ("provider", "provider get dc1"),
        ("provider-list", "provider get"),
        ("tenant", "tenant get blue"),
        ("tenant-list", "tenant list"),
        ("dry-run", "tenant delete blue --dry-run"),
        ("object-list", create.as_str()),
        ("ova-disk", "ova pack disk.raw packed.vmdk"),
        ("ova-disk", "ova unpack packed.vmdk unpacked.raw"),
        ("ova-inspect", "ova inspect appliance.ova"),
        ("ova-verify", "ova verify appliance.ova"),
        ("recovery-key-new", "recovery-key new --to-file recovery.pem"),
        ("recovery-key-open", "recovery-key open --key opens.pem --to-file keys.json snapshot.db"),
        ("support", support.as_str()),
        ("wait", "pool scale shop-workers 3 -n team-blue --wait=false"),
    ];
    for (name, command) in samples {
        fits(name, &bed.json(0, command));
    }
    let endpoint = [
        "endpoint-configure",
        "endpoint-configure-refusal",
        "endpoint-deployer",
        "endpoint-node",
        "endpoint-rejection",
    ];
    let others = IN_OTHER_TESTS.iter().filter(|(name, test)| test.contains(&format!("fits(\"{name}\", &")));
    let sampled = samples.iter().chain(others).map(|(name, _)| *name).chain(endpoint);
    let all = schemas();
    let named: BTreeSet<&str> = all.iter().map(|schema| schema.name).collect();
    assert_eq!(sampled.collect::<BTreeSet<_>>(), named, "each schema needs a sample");
}

#[test]
fn endpoint_answers_match_their_schemas() {
    for text in [
        include_str!("../../../contract/testdata/node.json"),
        include_str!("../../../contract/testdata/node-prepared.json"),
        include_str!("../../../contract/testdata/node-upgrading.json"),
    ] {
        let node: Node = serde_json::from_str(text).unwrap();
        fits("endpoint-node", &serde_json::to_value(node).unwrap());
    }
    let issued = Issued {
        ca: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        certificate: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        server: "https://192.168.10.10:6443".to_owned(),
        cluster: "control".to_owned(),
        ends: 1_800_000_000,
    };
    fits("endpoint-deployer", &serde_json::to_value(issued).unwrap());
    let finding = codes::PROPERTY_UNKNOWN.finding("later", "no property has this name", "Remove it");
    let findings = Findings::from(finding);
    let (properties, changed) = ([("later".to_owned(), String::new())].into(), vec!["ntp-servers".to_owned()]);
    let configured = Configured { properties, changed, applied: true, findings: findings.clone() };
    fits("endpoint-configure", &serde_json::to_value(&configured).unwrap());
    let (code, reason) = (codes::PROPERTY_UNKNOWN.code.to_owned(), findings.to_string());
    let refusal = ConfigureRefusal { code, reason, properties: configured.properties, findings };
    fits("endpoint-configure-refusal", &serde_json::to_value(refusal).unwrap());
    let refused = include_str!("../../../contract/testdata/refused.json");
    fits("endpoint-rejection", &serde_json::from_str(refused).unwrap());
}
