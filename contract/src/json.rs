//! JSON whose reader and writer may have different versions: how to treat unknown fields of objects.

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

/// Reads JSON strictly, at any depth: an unknown field is an error. For requests that change something, and for data
/// that is only valid as a whole.
pub fn read_strictly<T: DeserializeOwned + Serialize>(text: &[u8]) -> serde_json::Result<T> {
    let given: Value = serde_json::from_slice(text)?;
    let read: T = serde_json::from_slice(text)?;
    match unknown(&given, &serde_json::to_value(&read)?) {
        Some(field) => Err(serde_json::Error::custom(format!("unknown field `{field}`"))),
        None => Ok(read),
    }
}

/// Whether `given` has something, at any depth, that `known` lacks. `known` is `given` read and written again.
pub fn has_unknown(given: &Value, known: &Value) -> bool {
    unknown(given, known).is_some()
}

/// A field of `given`, at any depth, that `known` lacks. `known` is `given` read and written again. A field that is null counts
/// as missing.
fn unknown(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| match known.get(name) {
            Some(known) => unknown(value, known),
            None => (!value.is_null()).then(|| name.clone()),
        }),
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).find_map(|(given, known)| unknown(given, known))
        }
        _ => None,
    }
}

/// Adds to `new` the fields of `old`, at any depth, that `known` lacks. `known` is `old` read and written again. So a version
/// that does not know a field keeps it when it writes the record.
///
/// Elements of a list have no names. An element counts as the same one, at any position, if all its known fields are unchanged.
/// An element with a change counts as another one, and its unknown fields are lost.
pub fn keep_unknown(old: &Value, known: &Value, new: &mut Value) {
    match (old, known, new) {
        (Value::Object(old), Value::Object(known), Value::Object(new)) => {
            for (name, value) in old {
                match (known.get(name), new.get_mut(name)) {
                    (Some(known), Some(new)) => keep_unknown(value, known, new),
                    (None, None) => {
                        new.insert(name.clone(), value.clone());
                    }
                    _ => {}
                }
            }
        }
        (Value::Array(old), Value::Array(known), Value::Array(new)) if old.len() == known.len() => {
            let mut before: Vec<_> = old.iter().zip(known).collect();
            for element in new {
                if let Some(same) = before.iter().position(|(_, known)| *known == element) {
                    let (old, known) = before.remove(same);
                    keep_unknown(old, known, element);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Outer {
        inner: Inner,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        list: Vec<Inner>,
    }

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Inner {
        number: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<String>,
    }

    fn read(value: &Value) -> serde_json::Result<Outer> {
        read_strictly(value.to_string().as_bytes())
    }

    #[test]
    fn an_unknown_field_at_any_depth_is_named() {
        let right = json!({"inner": {"number": 1, "more": null}, "list": [{"number": 2, "more": "m"}]});
        assert_eq!(read(&right).unwrap().list[0].more.as_deref(), Some("m"));
        for place in ["", "/inner", "/list/0"] {
            let mut wrong = right.clone();
            wrong.pointer_mut(place).unwrap()["later"] = 1.into();
            let error = read(&wrong).unwrap_err().to_string();
            assert!(error.contains("unknown field `later`"), "{place}: {error}");
        }
        assert!(read(&json!({"inner": {}})).is_err());
    }

    #[test]
    fn unknown_fields_stay_and_removed_fields_do_not() {
        let old = json!({"inner": {"number": 1, "more": "m", "later": 1}, "list": [{"number": 2}], "latest": {"a": 1}});
        let known = json!({"inner": {"number": 1, "more": "m"}, "list": [{"number": 2}]});
        let mut new = json!({"inner": {"number": 3}});
        keep_unknown(&old, &known, &mut new);
        assert_eq!(new, json!({"inner": {"number": 3, "later": 1}, "latest": {"a": 1}}));
    }

    #[test]
    fn unknown_fields_of_elements_move_with_them() {
        let kept = |new: Value| {
            let old = json!([{"number": 1, "later": "a"}, {"number": 2, "later": "b"}, {"number": 2, "later": "c"}]);
            let (old, known) = (json!({"list": old}), json!({"list": [{"number": 1}, {"number": 2}, {"number": 2}]}));
            let mut new = json!({"list": new});
            keep_unknown(&old, &known, &mut new);
            new["list"].take()
        };
        let (one, two) = (json!({"number": 1}), json!({"number": 2}));
        let (a, b) = (json!({"number": 1, "later": "a"}), json!({"number": 2, "later": "b"}));
        let c = json!({"number": 2, "later": "c"});
        assert_eq!(kept(json!([one, two, two])), json!([a, b, c]), "the same");
        assert_eq!(kept(json!([two, one])), json!([b, a]), "others at their places, and one less");
        // Another element at the same position gets no unknown fields.
        assert_eq!(kept(json!([one, {"number": 3}, two])), json!([a, {"number": 3}, b]));
    }
}
