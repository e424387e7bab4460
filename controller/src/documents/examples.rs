//! Checks the examples of the documentation against the types and the schemas. An API server evaluates the rules.

use std::collections::BTreeSet;

use contract::recovery::{PrivateKey, PublicKey};
use fleet::workers::WorkerRecord;
use regex_lite::Regex;
use serde_json::{Map, Value};

use super::definitions::definition;
use crate::objects::{GROUP, VERSION, all};

const DOCUMENT: &str = include_str!("../../../docs/reference/objects.md");

/// The objects of the document's blocks of YAML.
fn examples() -> Vec<Value> {
    let blocks = DOCUMENT.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(|block| serde_saphyr::from_str(block).unwrap_or_else(|error| panic!("{error}:\n{block}"))).collect()
}

/// Collects the violations of a schema with their paths. Knows only the keywords that these schemas use.
fn mistakes(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
    let mut wrong = |what: String| found.push(format!("{path}: {what}"));
    let number = |name: &str| schema[name].as_i64();
    let within = |count: usize, least: &str, most: &str| {
        let count = count as i64;
        number(least).is_none_or(|least| count >= least) && number(most).is_none_or(|most| count <= most)
    };
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        wrong(format!("{value} is not in {}", schema["enum"]));
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("string", Value::String(text)) => {
            if !within(text.chars().count(), "minLength", "maxLength") {
                wrong(format!("{text:?} is too long or too short"));
            }
            let pattern = schema["pattern"].as_str().map(|pattern| Regex::new(pattern).unwrap());
            if pattern.is_some_and(|pattern| !pattern.is_match(text)) {
                wrong(format!("{text:?} does not match {}", schema["pattern"]));
            }
        }
        ("integer", Value::Number(given)) => {
            let given = given.as_i64().unwrap();
            let step = number("multipleOf").unwrap_or(1);
            let bounds = (number("minimum").unwrap_or(i64::MIN), number("maximum").unwrap_or(i64::MAX));
            if given < bounds.0 || given > bounds.1 || given % step != 0 {
                wrong(format!("{given} is out of bounds"));
            }
        }
        ("boolean", Value::Bool(_)) => {}
        ("array", Value::Array(entries)) => {
            if !within(entries.len(), "minItems", "maxItems") {
                wrong("too many or too few".to_owned());
            }
            for (place, entry) in entries.iter().enumerate() {
                mistakes(&format!("{path}[{place}]"), &schema["items"], entry, found);
            }
        }
        ("object", Value::Object(members)) => of_object(path, schema, members, found),
        (kind, other) => wrong(format!("{other} is no {kind}")),
    }
}

fn of_object(path: &str, schema: &Value, members: &Map<String, Value>, found: &mut Vec<String>) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            found.push(format!("{path}: {name} is missing"));
        }
    }
    for (name, value) in members {
        let path = format!("{path}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
            (Value::Null, Value::Null) => found.push(format!("{path}: there is no such field")),
            (Value::Null, of_each) => mistakes(&path, of_each, value, found),
            (of_field, _) => mistakes(&path, of_field, value, found),
        }
    }
}

#[test]
fn each_kind_has_a_complete_valid_example() {
    let mut shown = BTreeSet::new();
    for example in examples() {
        assert_eq!(example["apiVersion"], format!("{GROUP}/{VERSION}"));
        let all = all();
        let kind = all.iter().find(|kind| example["kind"] == kind.definition.spec.names.kind.as_str()).unwrap();
        shown.insert(kind.definition.spec.names.kind.clone());
        let definition = definition(&kind.definition);
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let is_namespaced = definition["spec"]["scope"] == "Namespaced";
        assert_eq!(example["metadata"]["namespace"].is_string(), is_namespaced, "{}", example["metadata"]["name"]);
        let mut found = Vec::new();
        for part in ["spec", "status"].into_iter().filter(|part| !example[*part].is_null()) {
            mistakes(part, &schema["properties"][part], &example[part], &mut found);
        }
        assert!(found.is_empty(), "{}: {found:#?}", example["kind"]);
        // Unknown fields would be lost, and misread ones changed.
        let written = (kind.read)(example.clone()).unwrap_or_else(|error| panic!("{}: {error}", example["kind"]));
        contains(&written, &example, "");
    }
    assert_eq!(shown.len(), all().len(), "{shown:?}");
}

/// A node refuses a recovery key that it cannot read, so the schema must describe the printed form.
#[test]
fn recovery_key_is_one_that_nodes_read() {
    let key = PrivateKey::draw().unwrap().public().unwrap().to_string();
    let all = all();
    let cluster = all.iter().find(|kind| kind.definition.spec.names.kind == "TenantCluster").unwrap();
    let definition = definition(&cluster.definition);
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let schema = &spec["properties"]["backup"]["properties"]["recoveryPublicKey"];
    let mut found = Vec::new();
    mistakes("key", schema, &key.as_str().into(), &mut found);
    assert!(schema["pattern"].is_string() && found.is_empty(), "{found:#?}");
    let examples = examples();
    let example = examples.iter().find_map(|example| example["spec"]["backup"]["recoveryPublicKey"].as_str());
    example.expect("a key in the examples").parse::<PublicKey>().unwrap();
}

/// Panics unless all of `part` is in `whole`. `whole` may have further defaults.
fn contains(whole: &Value, part: &Value, path: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, part) in part {
                let path = format!("{path}.{name}");
                contains(whole.get(name).unwrap_or_else(|| panic!("{path} is lost")), part, &path);
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{path}");
            whole.iter().zip(part).for_each(|(whole, part)| contains(whole, part, path));
        }
        (whole, part) => assert_eq!(whole, part, "{path}"),
    }
}

/// An API server rejects the times of records that the controller cannot read.
#[test]
fn schema_and_reader_accept_the_same_times() {
    let all = all();
    let field = |kind: &str, path: &str| {
        let kind = all.iter().find(|known| known.definition.spec.names.kind == kind).unwrap();
        let schema = definition(&kind.definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        schema.pointer(path).unwrap().clone()
    };
    let schemas = [
        field("Machine", "/properties/status/properties/journal/properties/since"),
        field("NodeImage", "/properties/spec/properties/lifecycle/items/properties/from"),
    ];
    for (time, is_valid) in [
        ("1970-01-01T00:00:00Z", true),
        ("2026-12-01T09:00:00Z", true),
        ("9999-12-31T23:59:59Z", true),
        ("1969-12-31T23:59:59Z", false),
        ("12026-12-01T09:00:00Z", false),
        ("2026-12-01T09:00:00+01:00", false),
        ("2026-12-01t09:00:00z", false),
    ] {
        for schema in &schemas {
            let mut found = Vec::new();
            mistakes("the time", schema, &Value::from(time), &mut found);
            assert_eq!(found.is_empty(), is_valid, "{time}: {found:?}");
        }
        let read = serde_json::from_value::<WorkerRecord>(serde_json::json!({"since": time}));
        assert_eq!(read.is_ok(), is_valid, "{time}: {read:?}");
    }
}

#[test]
fn schema_violations_are_found() {
    let all = all();
    let kind = all.iter().find(|kind| kind.definition.spec.names.kind == "NodePool").unwrap();
    let definition = definition(&kind.definition);
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let good = serde_json::json!({"clusterRef": {"name": "shop"}, "replicas": 3, "vmClass": "medium", "zones": ["a"]});
    let found = |change: &dyn Fn(&mut Value)| {
        let (mut value, mut found) = (good.clone(), Vec::new());
        change(&mut value);
        mistakes("spec", schema, &value, &mut found);
        found
    };
    assert_eq!(found(&|_| ()), Vec::<String>::new());
    let changes: [&dyn Fn(&mut Value); 7] = [
        &|value| value["replicas"] = 1001.into(),
        &|value| value["replicas"] = "3".into(),
        &|value| value["vmClass"] = "Medium".into(),
        &|value| value["class"] = "medium".into(),
        &|value| value["zones"] = vec!["a"; 17].into(),
        &|value| value["rollout"] = serde_json::json!({"maxSurge": -1}),
        &|value| drop(value.as_object_mut().unwrap().remove("vmClass")),
    ];
    for change in changes {
        assert_eq!(found(change).len(), 1);
    }
}
