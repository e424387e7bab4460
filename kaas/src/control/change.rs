//! What becomes of a field that an object has already.

use std::fmt;

use fleet::nodes::clean;
use serde_json::Value;

/// A field that is set anew.
#[derive(Debug)]
pub struct Change<'a> {
    /// As the API server names it, such as `.spec.replicas`.
    pub field: &'a str,
    pub old: &'a Value,
    pub new: &'a Value,
}

impl<'a> Change<'a> {
    /// Of a field in `there` that is to be as in `wanted`. One of a list's elements is found in neither, and only its name is told.
    pub fn of(field: &'a str, there: &'a Value, wanted: &'a Value) -> Self {
        static NOTHING: Value = Value::Null;
        let pointer = field.replace('.', "/");
        let at = |object: &'a Value| object.pointer(&pointer).unwrap_or(&NOTHING);
        Self { field, old: at(there), new: at(wanted) }
    }
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), clean);
        match (self.old, self.new) {
            (Value::Null, Value::Null) => write!(f, "{} as it is given here", clean(self.field)),
            (old, new) => write!(f, "{} from {} to {}", clean(self.field), shown(old), shown(new)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_told_with_what_is_there_and_what_is_to_be() {
        let there = json!({"spec": {"controlPlane": {"replicas": 1}, "image": "a"}});
        let wanted = json!({"spec": {"controlPlane": {"replicas": 3}, "image": "b", "paused": true}});
        let told = |field| Change::of(field, &there, &wanted).to_string();
        assert_eq!(told(".spec.controlPlane.replicas"), ".spec.controlPlane.replicas from 1 to 3");
        assert_eq!(told(".spec.image"), ".spec.image from a to b");
        assert_eq!(told(".spec.paused"), ".spec.paused from null to true");
        assert_eq!(told(".spec.x[name=\"\u{1b}[2J\"].y"), ".spec.x[name=\" [2J\"].y as it is given here");
    }
}
