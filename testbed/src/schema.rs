//! Checks JSON against generated JSON Schemas.

use serde_json::Value;

/// The places where a value differs from a schema. Checks types, fields, elements and choices, which the generated schemas
/// use.
pub fn off_schema(value: &Value, schema: &Value) -> Vec<String> {
    broken(value, schema, schema, "$")
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let found = |value: Value| off_schema(&value, &root);
        assert_eq!(found(json!({"name": null, "parts": ["a", "c"]})), [""; 0]);
        assert_eq!(found(json!({"parts": ["d"]})), ["$.name is missing", "$.parts[0] matches none of oneOf"]);
        assert_eq!(found(json!({"name": 7})), ["$.name is no string or null"]);
        assert_eq!(found(json!([])), ["$ is no object"]);
    }
}
