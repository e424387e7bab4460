//! Conditions of objects in words for people. Knows no kind.

use controller::objects::Reason;
use serde_json::Value;

use super::object::{Condition, read_conditions, text};
use super::wait::WaitResult;

/// The state of an object without a condition.
pub const UNRECONCILED: &str = "the controller has not reconciled it yet";

/// The conditions of an object, one a line.
pub fn conditions(object: &Value) -> String {
    let conditions = read_conditions(object);
    if conditions.is_empty() {
        return UNRECONCILED.to_owned();
    }
    conditions.iter().map(note).collect::<Vec<_>>().join("\n")
}

/// The current conditions as a [`super::Look`] has its lines.
pub fn lines(object: &Value) -> Vec<(String, String)> {
    let name = text(object, "/metadata/name");
    let current = read_conditions(object).into_iter().filter(|said| said.is_current);
    let lines: Vec<_> =
        current.map(|said| (format!("{name} {}", said.about), format!("{name}: {}", said.words()))).collect();
    match lines.is_empty() {
        true => vec![(name.to_owned(), format!("{name}: {UNRECONCILED}"))],
        false => lines,
    }
}

/// Whether all conditions of `about` hold: then `there`. A reason of the kind that needs the operator ends the wait.
pub fn wait_result<R: Reason>(object: &Value, about: &[&str], there: String) -> WaitResult {
    let said = read_conditions(object);
    let current: Vec<_> = said.iter().filter(|said| said.is_current).collect();
    if let Some(said) = current.iter().find(|said| said.needs_operator::<R>()) {
        return WaitResult::Stopped(format!("{}: {}", text(object, "/metadata/name"), said.words()));
    }
    let holds = |about: &&str| current.iter().any(|said| said.about == *about && said.holds());
    if about.iter().all(holds) { WaitResult::Ready(there) } else { WaitResult::Pending }
}

/// A condition, and whether it is of an earlier spec.
pub fn note(said: &Condition<'_>) -> String {
    format!("{}{}", said.words(), outdated(said))
}

/// The remark on a condition of an earlier spec. Empty for a current one.
pub fn outdated(said: &Condition<'_>) -> &'static str {
    if said.is_current { "" } else { " [of the spec as it was before]" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_without_conditions_is_not_reconciled() {
        assert_eq!(conditions(&json!({})), "the controller has not reconciled it yet");
    }
}
