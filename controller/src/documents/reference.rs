//! The reference of the kinds, and the document's block that holds it.

use std::fmt::Write;

use serde_json::Value;

use super::definitions::definition;
use crate::objects::{Described, Kind, all};

const BEGIN: &str = "<!-- objects:begin -->";
const END: &str = "<!-- objects:end -->";
/// Records that only the controller reads. Their fields are not part of the API, and are not listed.
const JOURNALS: [&str; 3] = ["status.deployment", "status.entries", "status.journal"];

/// `document` with the reference in its block. `None` without such a block.
pub fn renew(document: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", reference().trim()))
}

/// All kinds: fields, rules, columns, conditions.
pub fn reference() -> String {
    let mut text = String::new();
    for kind in all() {
        described(&kind, &mut text);
    }
    text
}

fn described(kind: &Kind, text: &mut String) {
    let definition = definition(&kind.definition);
    let (spec, version) = (&definition["spec"], &definition["spec"]["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = &spec["names"];
    let short: Vec<String> = list(&names["shortNames"]).map(|name| format!("`{}`", word(name))).collect();
    let _ = writeln!(text, "## {}\n\n{}\n", word(&names["kind"]), word(&schema["description"]));
    let scope = if spec["scope"] == "Namespaced" { "in a namespace" } else { "of the whole cluster" };
    let scale = if version["subresources"]["scale"].is_object() { ", with the subresource `scale`" } else { "" };
    let _ = writeln!(
        text,
        "`{}.{}`, short {}; {scope}{scale}.\n",
        word(&names["plural"]),
        word(&spec["group"]),
        short.join(", ")
    );

    text.push_str("| Field | Form | Default | Meaning |\n| --- | --- | --- | --- |\n");
    let mut rules: Vec<(String, String)> = messages("", schema);
    for part in ["spec", "status"] {
        fields(part, &schema["properties"][part], true, text, &mut rules);
    }

    text.push_str("\nRefused by the API server:\n\n");
    for (path, message) in &rules {
        let of = if path.is_empty() { "the object".to_owned() } else { format!("`{path}`") };
        let _ = writeln!(text, "- {of}: {message}");
    }

    text.push_str("\n| Column | Shows |\n| --- | --- |\n");
    for column in list(&version["additionalPrinterColumns"]) {
        let wide = if column["priority"].as_i64().unwrap_or_default() > 0 { " (`--output wide`)" } else { "" };
        let about = column["description"].as_str().map(|about| format!(": {about}")).unwrap_or_default();
        let _ = writeln!(text, "| {}{wide} | `{}`{about} |", word(&column["name"]), word(&column["jsonPath"]));
    }
    conditions(&kind.conditions, text);
    text.push('\n');
}

fn conditions(all: &[Described], text: &mut String) {
    if all.is_empty() {
        return;
    }
    text.push_str("\n| Condition | Reason | Status | When, and what to do |\n| --- | --- | --- | --- |\n");
    for Described { condition, meaning, reasons, .. } in all {
        let _ = writeln!(text, "| `{condition}` | | | {} |", cell(meaning));
        for (word, standing, meaning) in reasons {
            let _ = writeln!(text, "| | `{word}` | {standing:?} | {} |", cell(meaning));
        }
    }
}

/// Writes the line of a field, and those of the fields below it. Collects their rules.
fn fields(path: &str, schema: &Value, is_required: bool, text: &mut String, rules: &mut Vec<(String, String)>) {
    if !schema.is_object() {
        return;
    }
    if path.contains('.') {
        let default = match &schema["default"] {
            Value::Null if is_required => "**required**".to_owned(),
            Value::Null => String::new(),
            Value::Object(_) => "as below".to_owned(),
            other => format!("`{}`", plain(other)),
        };
        let meaning = cell(schema["description"].as_str().unwrap_or_default());
        let is_journal = JOURNALS.contains(&path);
        let note = if is_journal { " Its fields are internal to the controller, and may change." } else { "" };
        let _ = writeln!(text, "| `{path}` | {} | {default} | {meaning}{note} |", form(schema));
        if is_journal {
            return;
        }
    }
    rules.extend(messages(path, schema));
    let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        // Conditions are the same in all kinds, and described once.
        if name == "conditions" {
            let _ = writeln!(
                text,
                "| `{path}.conditions` | conditions | | {} |",
                cell(below["description"].as_str().unwrap_or_default())
            );
            continue;
        }
        fields(&format!("{path}.{name}"), below, required.contains(&name.as_str()), text, rules);
    }
    let entry = &schema["items"];
    if entry["properties"].is_object() {
        let path = format!("{path}[]");
        rules.extend(messages(&path, entry));
        let required: Vec<&str> = list(&entry["required"]).filter_map(Value::as_str).collect();
        for (name, below) in entry["properties"].as_object().into_iter().flatten() {
            fields(&format!("{path}.{name}"), below, required.contains(&name.as_str()), text, rules);
        }
    } else if entry.is_object() {
        rules.extend(messages(&format!("{path}[]"), entry));
    }
}

/// The messages of a schema's rules, each with its path.
fn messages(path: &str, schema: &Value) -> Vec<(String, String)> {
    let said = |rule: &Value| {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        (format!("{path}{field}"), rule["message"].as_str().unwrap_or_default().to_owned())
    };
    list(&schema["x-kubernetes-validations"]).map(said).collect()
}

fn form(schema: &Value) -> String {
    let number = |name: &str| schema[name].as_i64();
    let mut form = match schema["type"].as_str() {
        _ if schema["enum"].is_array() => {
            let values: Vec<String> = list(&schema["enum"]).map(|value| format!("`{}`", plain(value))).collect();
            values.join(", ")
        }
        Some("integer") => match (number("minimum"), number("maximum")) {
            (Some(least), Some(most)) => format!("number, {least} to {most}"),
            (Some(least), None) => format!("number, at least {least}"),
            _ => "number".to_owned(),
        },
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => {
            let least =
                number("minItems").filter(|least| *least > 0).map(|least| format!("{least} to ")).unwrap_or_default();
            let of = form_of_entries(&schema["items"]);
            format!("list, {least}{}{of}", number("maxItems").unwrap_or_default())
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of at most {}", number("maxProperties").unwrap_or_default())
        }
        Some("string") if schema["format"] == "date-time" => "date and time".to_owned(),
        Some("string") => match (schema["pattern"].as_str(), number("maxLength")) {
            (Some(pattern), _) if pattern.len() <= 40 => format!("text, `{}`", pattern.replace('|', "\\|")),
            (_, Some(most)) => format!("text, at most {most}"),
            (_, None) => "text".to_owned(),
        },
        _ => String::new(),
    };
    if let Some(step) = number("multipleOf") {
        let _ = write!(form, ", by {step}");
    }
    if !schema["example"].is_null() {
        let _ = write!(form, "; e.g. `{}`", plain(&schema["example"]));
    }
    form
}

fn form_of_entries(entry: &Value) -> String {
    match entry["pattern"].as_str() {
        Some(pattern) if pattern.len() <= 40 => format!(", each `{}`", pattern.replace('|', "\\|")),
        _ => String::new(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text without its quotation marks, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_matches_the_types() {
        let document = include_str!("../../../docs/reference/objects.md");
        let renewed = renew(document).expect("a block for the reference");
        assert!(renewed == document, "docs/reference/objects.md is behind the types: `make reference` renews it");
    }

    /// A repeated line would not say which field it is about.
    #[test]
    fn rules_of_a_kind_are_listed_once() {
        let text = reference();
        let refused = text.split("\nRefused by the API server:\n\n").skip(1);
        let lists: Vec<Vec<&str>> =
            refused.map(|rest| rest.lines().take_while(|line| line.starts_with("- ")).collect()).collect();
        assert_eq!(lists.len(), all().len());
        for list in lists {
            let repeated: Vec<&&str> =
                list.iter().filter(|line| list.iter().filter(|other| other == line).count() > 1).collect();
            assert!(repeated.is_empty(), "{repeated:?}");
        }
    }

    #[test]
    fn fields_of_journals_are_not_listed() {
        let text = reference();
        for journal in JOURNALS {
            assert!(text.contains(&format!("| `{journal}` |")), "no {journal}");
            for below in [".", "[]."] {
                assert!(!text.contains(&format!("`{journal}{below}")), "fields of {journal}");
            }
        }
    }

    #[test]
    fn document_without_a_block_is_rejected() {
        assert_eq!(renew("nothing here"), None);
    }

    #[test]
    fn reference_shows_bounds_default_and_example() {
        let text = reference();
        for line in [
            "| `spec.rollout.maxSurge` | number, 0 to 100 | `1` | How many VMs may exist above the wanted number during a replacement. |",
            "| `spec.controlPlane.replicas` | `1`, `3` | `1` | Number of nodes: 1, or 3, of which one may fail. It cannot change. |",
            "- `spec.network.services`: overlaps the range of pods",
            "| | `LoginRefused` | False | The vCenter rejects the user or the password. The controller tries again only after the Secret changes, so that the \
             account is not locked. |",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }
}
