//! The JSON output of commands matches the schemas of the reference.

use std::collections::BTreeSet;

use contract::node::Node;
use kaas::commands::schemas::schemas;
use serde_json::{Value, json};
use testbed::{Appliance, few_properties};

use crate::{CREATE, with_shop};

/// Schemas without a sample: their outputs need control-plane nodes or a vCenter.
const UNSAMPLED: [&str; 18] = [
    "control-adopt",
    "control-backup",
    "control-certificate",
    "control-deletion",
    "control-outcome",
    "control-plan",
    "control-status",
    "endpoint-configure",
    "endpoint-configure-refusal",
    "endpoint-deployer",
    "kubeconfig",
    "provider-probe",
    "recovery-key-open",
    "upgrade-abandoned-unread",
    "upgrade-kubernetes",
    "upgrade-kubernetes-plan",
    "upgrade-plan",
    "upgrade-status",
];

/// The places where a value breaks a schema. Checks types, fields, elements and choices, which the generated schemas use.
fn broken(value: &Value, schema: &Value, root: &Value, place: &str) -> Vec<String> {
    if let Some(to) = schema["$ref"].as_str() {
        let target = root.pointer(to.trim_start_matches('#')).unwrap_or_else(|| panic!("{to} is missing"));
        return broken(value, target, root, place);
    }
    let list = |keyword: &str| schema[keyword].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    let types = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        _ => list("type").iter().filter_map(Value::as_str).collect(),
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("{other} is no type"),
    };
    if !types.is_empty() && !types.iter().any(is) {
        found.push(format!("{place} is no {}", types.join(" or ")));
    }
    if let Value::Object(fields) = value {
        let missing = list("required").iter().filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
        found.extend(missing.map(|name| format!("{place}.{name} is missing")));
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(value) = fields.get(name) {
                found.extend(broken(value, schema, root, &format!("{place}.{name}")));
            }
        }
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(broken(element, &schema["items"], root, &format!("{place}[{index}]")));
    }
    for keyword in ["anyOf", "oneOf"] {
        let choices = list(keyword);
        if !choices.is_empty() && choices.iter().all(|choice| !broken(value, choice, root, place).is_empty()) {
            found.push(format!("{place} matches none of {keyword}"));
        }
    }
    let constant = schema.get("const").is_none_or(|constant| constant == value);
    if !constant || !list("enum").is_empty() && !list("enum").contains(value) {
        found.push(format!("{place} has another value"));
    }
    found
}

#[track_caller]
fn matches(name: &str, value: &Value) {
    let all = schemas();
    let schema = all.iter().find(|schema| schema.name == name).unwrap_or_else(|| panic!("{name} has no schema"));
    let schema = schema.schema.as_value();
    assert_eq!(broken(value, schema, schema, name), [""; 0], "{value:#}");
}

#[test]
fn json_outputs_match_their_schemas() {
    let bed = with_shop();
    bed.kept().put("providers", "", "dc1", json!({}));
    bed.kept().put("nodeimages", "", "kaas-tenant-0.2.0", json!({"spec": {"digest": "sha256:0a"}}));
    let (name, full_version) = ("kaas-control-plane", "0.2.0+bbbbbbb.etcd-3.6.0");
    let ova = Appliance { name, full_version, properties: few_properties(), extra_config: Vec::new(), signer: None };
    ova.write(&bed.path(""));
    bed.file("disk.raw", &"x".repeat(64 << 10));
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
        ("object-list", create.as_str()),
        ("ova-disk", "ova pack disk.raw packed.vmdk"),
        ("ova-disk", "ova unpack packed.vmdk unpacked.raw"),
        ("ova-inspect", "ova inspect appliance.ova"),
        ("ova-verify", "ova verify appliance.ova"),
        ("recovery-key-new", "recovery-key new --to-file recovery.pem"),
        ("support", support.as_str()),
        ("wait", "pool scale shop-workers 3 -n team-blue --wait=false"),
    ];
    for (name, command) in samples {
        matches(name, &bed.json(0, command));
    }
    let sampled = samples.iter().map(|(name, _)| *name).chain(["endpoint-node", "endpoint-rejection"]);
    let all = schemas();
    let named: BTreeSet<&str> = all.iter().map(|schema| schema.name).collect();
    assert_eq!(sampled.chain(UNSAMPLED).collect::<BTreeSet<_>>(), named, "each schema needs a sample");
}

#[test]
fn endpoint_answers_match_their_schemas() {
    for text in [
        include_str!("../../../contract/testdata/node.json"),
        include_str!("../../../contract/testdata/node-prepared.json"),
        include_str!("../../../contract/testdata/node-upgrading.json"),
    ] {
        let node: Node = serde_json::from_str(text).unwrap();
        matches("endpoint-node", &serde_json::to_value(node).unwrap());
    }
    let refused = include_str!("../../../contract/testdata/refused.json");
    matches("endpoint-rejection", &serde_json::from_str(refused).unwrap());
}

#[test]
fn broken_values_are_named() {
    let root = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": ["string", "null"]},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
        },
        "$defs": {"Part": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}},
    });
    let found = |value: Value| broken(&value, &root, &root, "x");
    assert_eq!(found(json!({"name": null, "parts": ["a", "c"]})), [""; 0]);
    assert_eq!(found(json!({"parts": ["d"]})), ["x.name is missing", "x.parts[0] matches none of oneOf"]);
    assert_eq!(found(json!({"name": 7})), ["x.name is no string or null"]);
    assert_eq!(found(json!([])), ["x is no object"]);
}
