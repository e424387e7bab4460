//! The kinds as CustomResourceDefinitions, the policies, and the controller's rights: everything that an API server needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::policies::policies;
use super::rights::rights;
use super::yaml::document;
use crate::objects::all;

pub struct Definition {
    pub file: String,
    /// YAML. The same types always give the same text.
    pub text: String,
}

/// All objects that an API server needs, in the order in which they can be applied.
pub fn definitions() -> Vec<Definition> {
    let files = files().into_iter();
    files.map(|(file, objects)| Definition { file, text: objects.iter().map(document).collect() }).collect()
}

/// The same objects as one list (`v1`, `List`) for programs: the control plane's image contains it.
pub fn list() -> Value {
    let items: Vec<Value> = files().into_iter().flat_map(|(_, objects)| objects).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn files() -> Vec<(String, Vec<Value>)> {
    let kinds = all().into_iter().map(|kind| {
        let definition = definition(&kind.definition);
        (format!("{}.yaml", kind.definition.spec.names.plural), vec![definition])
    });
    let policies = policies().into_iter().map(|(name, objects)| (format!("{name}.yaml"), objects.to_vec()));
    kinds.chain(policies).chain([("rights.yaml".to_owned(), rights())]).collect()
}

/// A kind's definition. Corrects what the types contain and an API server does not accept.
pub fn definition(kind: &CustomResourceDefinition) -> Value {
    // It cannot fail: all keys are texts, and all numbers finite.
    let mut definition = serde_json::to_value(kind).unwrap_or_default();
    if let Some(Value::Array(versions)) = definition.pointer_mut("/spec/versions") {
        for version in versions {
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                tidy(schema);
            }
        }
    }
    definition
}

/// An API server treats null as a missing field: it drops it where the schema has no `nullable`. Rust's number formats do not
/// exist in OpenAPI; the schema has their bounds. A title only repeats the name.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("nullable");
            if members.get("type").is_some_and(Value::is_string) {
                members.remove("title");
                let format = members.get("format").and_then(Value::as_str);
                if format.is_some_and(|format| format.starts_with("uint")) {
                    members.insert("format".to_owned(), json!("int64"));
                }
            }
            members.values_mut().for_each(tidy);
        }
        Value::Array(entries) => entries.iter_mut().for_each(tidy),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
            if let (false, Some(whole)) = (number.is_i64() || number.is_u64(), whole) {
                *schema = json!(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::objects::GROUP;

    /// Each schema below a schema, with its path.
    fn schemas<'v>(path: &str, schema: &'v Value, visit: &mut dyn FnMut(&str, &'v Value)) {
        visit(path, schema);
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            schemas(&format!("{path}.{name}"), below, visit);
        }
        for (part, end) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[part].is_object() {
                schemas(&format!("{path}{end}"), &schema[part], visit);
            }
        }
    }

    fn of_each_kind(mut visit: impl FnMut(&str, &Value)) {
        for kind in all() {
            let definition = definition(&kind.definition);
            let name = &kind.definition.spec.names.kind;
            schemas(name, &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut visit);
        }
    }

    #[test]
    fn definitions_match_the_types() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("definitions");
        let there: BTreeSet<String> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let definitions = definitions();
        assert_eq!(there, definitions.iter().map(|definition| definition.file.clone()).collect());
        for Definition { file, text } in definitions {
            let written = fs::read_to_string(directory.join(&file)).unwrap();
            assert!(written == text, "{file} is behind the types: `make reference` renews it");
        }
    }

    /// The image's builder distinguishes kinds by their `kind`, and the agent applies them first.
    #[test]
    fn list_begins_with_all_kinds() {
        let list = list();
        let items = list["items"].as_array().unwrap();
        let is_kind = |object: &&Value| object["kind"] == "CustomResourceDefinition";
        assert_eq!(items.iter().take_while(is_kind).count(), all().len());
        assert_eq!(items.iter().filter(is_kind).count(), all().len());
        let text: String = items.iter().map(document).collect();
        assert_eq!(text, definitions().into_iter().map(|definition| definition.text).collect::<String>());
    }

    /// An API server rejects a kind whose rules could take too long within the bounds of its schema.
    #[test]
    fn fields_have_bounds_and_descriptions() {
        let mut wrong = Vec::new();
        of_each_kind(|path, schema| {
            let is_ours = path.contains('.') && !path.ends_with(".metadata");
            let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let bound = match schema["type"].as_str() {
                Some("array") => "maxItems",
                Some("object") if schema["additionalProperties"].is_object() => "maxProperties",
                Some("string") if schema["enum"].is_null() && schema["format"].is_null() => "maxLength",
                Some("integer") if schema["enum"].is_null() => "minimum",
                Some("object" | "string" | "boolean" | "integer") => "type",
                other => {
                    wrong.push(format!("{path}: type {other:?}"));
                    return;
                }
            };
            if !is_free && schema[bound].is_null() {
                wrong.push(format!("{path}: no {bound}"));
            }
            if is_ours && !path.ends_with(['}', ']']) && schema["description"].as_str().is_none_or(str::is_empty) {
                wrong.push(format!("{path}: no description"));
            }
            for never in ["nullable", "title", "anyOf", "oneOf", "allOf", "not", "$ref"] {
                if !schema[never].is_null() {
                    wrong.push(format!("{path}: {never}"));
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The preflight rejects a cluster with `restore` (`decisions/preflight.rs`).
    #[test]
    fn refused_fields_are_documented_as_refused() {
        let mut found = 0;
        of_each_kind(|path, schema| {
            if path == "TenantCluster.spec.restore" {
                found += 1;
                let description = schema["description"].as_str().unwrap();
                assert!(description.contains("`Preflight: NotSupported`"), "{description}");
            }
        });
        assert_eq!(found, 1);
    }

    #[test]
    fn rules_have_messages_and_name_existing_fields() {
        let mut rules = 0;
        of_each_kind(|path, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                rules += 1;
                let (text, message) = (rule["rule"].as_str().unwrap(), rule["message"].as_str().unwrap());
                assert!(!message.is_empty() && !message.contains('\n'), "{path}: {text}");
                if let Some(field) = rule["fieldPath"].as_str() {
                    assert!(schema["properties"][&field[1..]].is_object(), "{path}: {field}");
                }
                // The API server does not accept longer ones either.
                assert!(message.len() <= 2048, "{path}: {message}");
            }
        });
        assert!(rules > 60, "only {rules} rules were looked at");
    }

    /// Finding 25 of controller.md: `kubectl get` showed Ready nodes without their number, and reasons with `-o wide` only.
    #[test]
    fn columns_show_reasons_and_numbers() {
        let columns = |kind: &str| -> Vec<String> {
            let all = all();
            let found =
                all.iter().find(|it| it.definition.spec.names.kind == kind).unwrap_or_else(|| panic!("no {kind}"));
            let columns = definition(&found.definition)["spec"]["versions"][0]["additionalPrinterColumns"].clone();
            let is_always = |column: &&Value| column["priority"].as_i64().unwrap_or_default() == 0;
            let shown = columns.as_array().into_iter().flatten().filter(is_always);
            shown.filter_map(|column| column["name"].as_str().map(str::to_owned)).collect()
        };
        let expected = [
            ("TenantCluster", ["CP-Ready", "CP", "Reason"]),
            ("NodePool", ["Ready", "Replicas", "Reason"]),
            ("Machine", ["Phase", "Ready", "Reason"]),
            ("Operation", ["Step", "Outcome", "Reason"]),
        ];
        for (kind, names) in expected {
            let shown = columns(kind);
            assert!(names.iter().all(|name| shown.iter().any(|it| it == name)), "{kind}: {shown:?}");
        }
    }

    #[test]
    fn kinds_share_a_group_and_have_unique_names() {
        let mut names = BTreeSet::new();
        for kind in all() {
            let spec = &kind.definition.spec;
            assert_eq!((spec.group.as_str(), spec.versions[0].name.as_str()), (GROUP, crate::objects::VERSION));
            let short = spec.names.short_names.iter().flatten();
            for name in short.chain([&spec.names.plural]).chain(spec.names.singular.as_ref()) {
                assert!(names.insert(name.clone()), "{name} is there twice");
            }
            let of_table: BTreeSet<_> = kind.conditions.iter().map(|described| described.condition).collect();
            assert_eq!(of_table.len(), kind.conditions.len());
            for described in &kind.conditions {
                assert!(
                    described.reasons.iter().any(|(_, standing, _)| *standing == crate::objects::ConditionStatus::True)
                );
                let words: BTreeSet<_> = described.reasons.iter().map(|(word, ..)| word).collect();
                assert_eq!(words.len(), described.reasons.len(), "{}", described.condition);
            }
        }
        assert_eq!(names.len(), 11 * 3);
    }
}
