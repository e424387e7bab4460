//! Writes JSON as YAML, with sorted keys. Each text is quoted, so that none is read as a number or a boolean.

use std::fmt::Write;

use serde_json::{Map, Value};

/// A document of YAML, with its separator in front.
pub fn document(value: &Value) -> String {
    let mut text = String::from("---\n");
    match value {
        Value::Object(members) if !members.is_empty() => mapping(members, 0, &mut text),
        other => {
            let _ = writeln!(text, "{other}");
        }
    }
    text
}

fn mapping(members: &Map<String, Value>, depth: usize, text: &mut String) {
    let mut keys: Vec<&String> = members.keys().collect();
    keys.sort();
    for (place, name) in keys.into_iter().enumerate() {
        // The first key of an entry of a list follows its dash.
        if place > 0 || !text.ends_with("- ") {
            indent(depth, text);
        }
        let _ = write!(text, "{}:", key(name));
        value(&members[name], depth, text);
    }
}

fn value(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            mapping(members, depth + 1, text);
        }
        Value::Array(entries) if !entries.is_empty() => {
            text.push('\n');
            for entry in entries {
                indent(depth + 1, text);
                text.push_str("- ");
                match entry {
                    Value::Object(members) if !members.is_empty() => mapping(members, depth + 2, text),
                    // A JSON text in one line is also YAML (YAML 1.2.2, section 1.2).
                    other => {
                        let _ = writeln!(text, "{other}");
                    }
                }
            }
        }
        other => {
            let _ = writeln!(text, " {other}");
        }
    }
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// A key, quoted unless YAML 1.1 reads it as a plain word.
fn key(name: &str) -> String {
    const WORDS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !WORDS.contains(&name.to_ascii_lowercase().as_str())
        && name != "null";
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_yaml_reads_back_unchanged() {
        let value = json!({
            "b": {"on": true, "~": null, "empty": {}, "none": []},
            "a": [{"z": "1.36", "y": "yes: #no\n\"quoted\" \\s"}, [1, 2], "x", {}, -3, 1.5],
        });
        let text = document(&value);
        assert!(text.starts_with("---\na:\n  - \"y\": \"yes: #no\\n"), "{text}");
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
    }
}
