use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::cluster_file::ClusterFile;

const EXAMPLE: &str = include_str!("../../commands/control/deployment/examples/vsphere.toml");

/// The tables with fixed keys, by their heads in TOML.
const TABLES: [&str; 5] = ["[cluster]", "[vm]", "[[node]]", "[provider.vsphere]", "[provider.vsphere.limits]"];

/// A table of the schema, by its head in TOML.
fn table_of<'s>(schema: &'s Value, head: &str) -> &'s Value {
    head.trim_matches(['[', ']']).split('.').fold(schema, |table, name| {
        let found = &table["properties"][name];
        if found["items"].is_object() { &found["items"] } else { found }
    })
}

/// The mistakes of a document, by the keywords that the schema uses.
fn wrong(schema: &Value, of: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = of["$ref"].as_str() {
        return wrong(schema, &schema["definitions"][reference.rsplit('/').next().unwrap()], value, at);
    }
    if let Some(ways) = of["oneOf"].as_array() {
        let fit = ways.iter().filter(|way| wrong(schema, way, value, at).is_empty()).count();
        return if fit == 1 { Vec::new() } else { vec![format!("{at}: {fit} of {} fit", ways.len())] };
    }
    let within = |count: usize, least: &str, most: &str| {
        of[least].as_u64().is_none_or(|least| count as u64 >= least)
            && of[most].as_u64().is_none_or(|most| count as u64 <= most)
    };
    let mut found = Vec::new();
    let is_in_order = match (of["type"].as_str().unwrap(), value) {
        ("object", Value::Object(keys)) => {
            for (name, value) in keys {
                let at = format!("{at}.{name}");
                match &of["properties"][name] {
                    Value::Null => found.push(format!("{at}: is no key")),
                    of => found.extend(wrong(schema, of, value, &at)),
                }
            }
            let required = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            found.extend(
                required.filter(|name| !keys.contains_key(*name)).map(|name| format!("{at}.{name}: is missing")),
            );
            within(keys.len(), "minProperties", "maxProperties")
        }
        ("array", Value::Array(items)) => {
            found.extend(items.iter().flat_map(|item| wrong(schema, &of["items"], item, at)));
            within(items.len(), "minItems", "maxItems")
        }
        ("string", Value::String(text)) => {
            within(text.len(), "minLength", "maxLength") && of["enum"].as_array().is_none_or(|all| all.contains(value))
        }
        ("integer", Value::Number(number)) => {
            number.as_u64().is_some_and(|number| within(usize::try_from(number).unwrap(), "minimum", "maximum"))
        }
        ("boolean", Value::Bool(_)) => true,
        _ => false,
    };
    found.extend((!is_in_order).then(|| format!("{at}: is not in order")));
    found
}

fn wrong_with(text: &str) -> Vec<String> {
    let schema = schema();
    wrong(&schema, &schema, &toml::from_str(text).unwrap(), "")
}

/// An example with its commented-out keys.
fn with_comments(text: &str) -> String {
    let uncomment = |line: &str| {
        let is_key = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let holds =
            |rest: &&str| rest.starts_with("[provider") || rest.split_once(" = ").is_some_and(|(key, _)| is_key(key));
        let rest = line.strip_prefix("# ").filter(holds);
        rest.unwrap_or(line).to_owned() + "\n"
    };
    text.lines().map(uncomment).collect()
}

#[test]
fn example_with_commented_keys_matches_the_schema() {
    assert_eq!(wrong_with(EXAMPLE), [""; 0]);
    assert_eq!(wrong_with(&with_comments(EXAMPLE)), [""; 0]);
    assert!(with_comments(EXAMPLE).contains("\n[provider.vsphere.limits]\n"));
}

#[test]
fn schema_detects_wrong_values() {
    for (from, to, what) in [
        ("clones = \"linked\"", "clones = \"instant\"", ".provider.vsphere.clones: is not in order"),
        ("processors = 2", "processors = 0", ".vm.processors: is not in order"),
        ("processors = 2", "processor = 2", ".vm.processor: is no key"),
        ("folder = \"kaas/control\"\n", "", ".provider.vsphere.folder: is missing"),
        ("{ prompt = \"Password of kaas@vsphere.local\" }", "\"secret\"", ".provider.vsphere.password: 0 of 3 fit"),
    ] {
        let text = EXAMPLE.replacen(from, to, 1);
        assert!(wrong_with(&text).iter().any(|wrong| wrong == what), "{what}: {:?}", wrong_with(&text));
    }
}

#[test]
fn schema_has_exactly_the_keys_of_the_parser() {
    let schema = schema();
    for head in TABLES {
        let known: BTreeSet<&str> =
            table_of(&schema, head)["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let text = format!("{head}\nno-such-key = 1\n");
        let told = ClusterFile::parse(Path::new("cluster.toml"), text).err().unwrap();
        let unknown = told
            .0
            .iter()
            .find_map(|mistake| mistake.message.split_once(": known are "))
            .unwrap_or_else(|| panic!("{head}: {told}"));
        assert_eq!(unknown.1.split(", ").collect::<BTreeSet<_>>(), known, "{head}");
    }
}
