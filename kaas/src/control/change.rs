//! The change of a field that an object already has.

use std::fmt;

use fleet::nodes::clean;
use serde_json::Value;

/// A field that gets a new value.
#[derive(Debug)]
pub struct Change<'a> {
    /// As the API server names it, such as `.spec.replicas`.
    pub field: &'a str,
    pub old: &'a Value,
    pub new: &'a Value,
}

impl<'a> Change<'a> {
    /// The change of a field from its value in `there` to that in `wanted`. Elements of lists are found in neither: for them only
    /// the name is shown.
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
    fn changes_show_the_old_and_new_value() {
        let there = json!({"spec": {"controlPlane": {"replicas": 1}, "image": "a"}});
        let wanted = json!({"spec": {"controlPlane": {"replicas": 3}, "image": "b", "paused": true}});
        let told = |field| Change::of(field, &there, &wanted).to_string();
        assert_eq!(told(".spec.controlPlane.replicas"), ".spec.controlPlane.replicas from 1 to 3");
        assert_eq!(told(".spec.image"), ".spec.image from a to b");
        assert_eq!(told(".spec.paused"), ".spec.paused from null to true");
        assert_eq!(told(".spec.x[name=\"\u{1b}[2J\"].y"), ".spec.x[name=\" [2J\"].y as it is given here");
    }
}
