//! Reads the manifests of add-ons: YAML files with placeholders, `${NAME}`, next to the modules that have the values.

use std::collections::BTreeSet;

use serde_json::Value;

/// The objects of a manifest, with its placeholders filled after parsing: no value can change the structure. A scalar that is only
/// a placeholder becomes the value, of any type. Within a longer text, the value is a text or a number. In the data of a
/// ConfigMap, a value that is not a text becomes its JSON.
///
/// # Panics
/// If the manifest is not valid, or its placeholders are not those of `values`. Tests read each manifest.
pub(super) fn objects<const N: usize>(manifest: &str, values: [(&str, Value); N]) -> Vec<Value> {
    read(manifest, &values).unwrap_or_else(|error| panic!("{error} in:\n{manifest}"))
}

fn read(manifest: &str, values: &[(&str, Value)]) -> Result<Vec<Value>, String> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifest).map_err(|error| error.to_string())?;
    let mut unused: BTreeSet<&str> = values.iter().map(|(name, _)| *name).collect();
    for object in &mut objects {
        fill(object, values, &mut unused)?;
        let data = object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(|data| data.values_mut());
        data.filter(|value| !value.is_string()).for_each(|value| *value = value.to_string().into());
    }
    unused.first().map_or(Ok(objects), |name| Err(format!("no placeholder ${{{name}}}")))
}

fn fill<'v>(node: &mut Value, values: &[(&'v str, Value)], unused: &mut BTreeSet<&'v str>) -> Result<(), String> {
    match node {
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(item, values, unused)),
        Value::Object(fields) => fields.iter_mut().try_for_each(|(key, field)| match key.contains("${") {
            true => Err(format!("a placeholder in the key {key:?}")),
            false => fill(field, values, unused),
        }),
        Value::String(text) => {
            *node = filled(text, values, unused)?;
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn filled<'v>(text: &str, values: &[(&'v str, Value)], unused: &mut BTreeSet<&'v str>) -> Result<Value, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, placeholder)) = rest.split_once("${") {
        let (name, after) = placeholder.split_once('}').ok_or_else(|| format!("an open placeholder in {text:?}"))?;
        let (name, value) =
            values.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("no value of {name}"))?;
        unused.remove(name);
        filled.push_str(before);
        match value {
            value if text.len() == "${}".len() + name.len() => return Ok(value.clone()),
            Value::String(value) => filled.push_str(value),
            Value::Number(value) => filled.push_str(&value.to_string()),
            _ => return Err(format!("the value of {name} is not for a text")),
        }
        rest = after;
    }
    Ok((filled + rest).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_do_not_change_the_structure() {
        let hostile = "}\n---\nkind: Secret # \"' ${PORT}";
        let manifest = "kind: Pod\nname: {first: \"a ${NAME} ${PORT}\", second: \"${NAME}\"}\nports: [\"${PORT}\"]\n";
        let found = read(manifest, &[("NAME", hostile.into()), ("PORT", 7.into())]).unwrap();
        let name = json!({"first": format!("a {hostile} 7"), "second": hostile});
        assert_eq!(found, [json!({"kind": "Pod", "name": name, "ports": [7]})]);
    }

    #[test]
    fn data_of_config_maps_is_text() {
        let found =
            read("data: {a: text, b: {list: \"${LIST}\"}}\n---\nkind: Pod\n", &[("LIST", json!([1, "x"]))]).unwrap();
        assert_eq!(found, [json!({"data": {"a": "text", "b": "{\"list\":[1,\"x\"]}"}}), json!({"kind": "Pod"})]);
    }

    #[test]
    fn placeholders_and_values_are_the_same() {
        let error = |manifest: &str| read(manifest, &[("LIST", json!([]))]).unwrap_err();
        assert_eq!(error("a: b"), "no placeholder ${LIST}");
        assert_eq!(error("a: ${OTHER}"), "no value of OTHER");
        assert_eq!(error("a: ${LIST"), "an open placeholder in \"${LIST\"");
        assert_eq!(error("a: b ${LIST}"), "the value of LIST is not for a text");
        assert_eq!(error("${LIST}: a"), "a placeholder in the key \"${LIST}\"");
        assert!(read("a: {", &[]).is_err());
    }
}
