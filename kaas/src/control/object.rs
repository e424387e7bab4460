//! Reads fields of objects. Unknown fields are ignored. A condition that is missing, or is of an earlier generation of the spec,
//! is unknown.

use std::time::{Duration, SystemTime};

use controller::objects::Reason;
use serde_json::Value;

/// The text at a place of an object. Empty if it is missing.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'v> {
    pub about: &'v str,
    /// `True`, `False` or `Unknown`.
    pub status: &'v str,
    /// Why, in a word.
    pub reason: &'v str,
    /// Why, in a sentence.
    pub message: &'v str,
    /// When the status last changed, as the object has it.
    pub since: &'v str,
    /// Whether it is of the current spec.
    pub is_current: bool,
}

impl Condition<'_> {
    pub fn holds(&self) -> bool {
        self.is_current && self.status == "True"
    }

    /// The reason of a kind. `None` if the kind has no such reason of the condition.
    pub fn of_kind<R: Reason>(&self) -> Option<R> {
        R::find(self.about, self.reason)
    }

    pub fn is_one<R: Reason>(&self, reasons: &[R]) -> bool {
        reasons.iter().any(|reason| reason.condition() == self.about && reason.word() == self.reason)
    }

    /// Whether the operator must act, by the reasons of a kind.
    pub fn needs_operator<R: Reason>(&self) -> bool {
        self.of_kind::<R>().is_some_and(R::needs_operator)
    }

    /// For people: `Preflight is False (AddressesMissing): the pool api has none left`.
    pub fn words(&self) -> String {
        let Self { about, status, reason, message, .. } = self;
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        format!("{about} is {status} ({reason}){message}")
    }
}

/// The conditions of an object, in its order.
pub fn read_conditions(object: &Value) -> Vec<Condition<'_>> {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(i64::MAX);
    let conditions = object["status"]["conditions"].as_array();
    let said = |condition| Condition {
        about: text(condition, "/type"),
        status: text(condition, "/status"),
        reason: text(condition, "/reason"),
        message: text(condition, "/message"),
        since: text(condition, "/lastTransitionTime"),
        is_current: condition["observedGeneration"].as_i64().is_some_and(|judged| judged >= generation),
    };
    conditions.into_iter().flatten().map(said).collect()
}

/// The status of a condition, for a column. `-` if the object does not have the condition.
pub fn status<'v>(object: &'v Value, about: &str) -> &'v str {
    read_conditions(object)
        .into_iter()
        .find(|condition| condition.about == about)
        .map_or("-", |condition| condition.status)
}

/// The age of an object, as kubectl shows it. `-` if it is unknown.
pub fn age(object: &Value, now: SystemTime) -> String {
    age_of(text(object, "/metadata/creationTimestamp"), now)
}

/// The same for a time of an object.
pub fn age_of(time: &str, now: SystemTime) -> String {
    let time = humantime::parse_rfc3339(time);
    time.map_or_else(|_| "-".to_owned(), |time| short(now.duration_since(time).unwrap_or_default()))
}

fn short(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn condition_of_an_earlier_spec_does_not_hold() {
        let object = |judged: Value| {
            let condition = json!({"type": "Ready", "status": "True", "reason": "Available", "message": "",
                                   "observedGeneration": judged});
            json!({"metadata": {"generation": 3}, "status": {"conditions": [condition]}})
        };
        let holds = |judged: Value| read_conditions(&object(judged))[0].holds();
        assert!(holds(json!(3)) && holds(json!(4)));
        assert!(!holds(json!(2)) && !holds(Value::Null));
        assert_eq!((status(&object(json!(2)), "Ready"), status(&object(json!(2)), "UpToDate")), ("True", "-"));
        assert!(read_conditions(&json!({"metadata": {"generation": 3}})).is_empty());
        assert_eq!(read_conditions(&object(json!(3)))[0].words(), "Ready is True (Available)");
    }

    #[test]
    fn reason_of_another_kind_needs_no_operator() {
        use controller::objects::{NodePoolReason, ProviderReason};
        let object = json!({"status": {"conditions": [{"type": "Ready", "reason": "NamespaceNotAllowed"}]}});
        let ready = read_conditions(&object)[0];
        assert_eq!(ready.of_kind::<NodePoolReason>(), Some(NodePoolReason::NamespaceNotAllowed));
        assert!(ready.needs_operator::<NodePoolReason>() && !ready.needs_operator::<ProviderReason>());
    }

    #[test]
    fn ages_are_short() {
        let object = json!({"metadata": {"creationTimestamp": "2026-12-01T09:00:00Z"}});
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let ages = [
            ("2026-12-01T09:01:59Z", "119s"),
            ("2026-12-01T09:02:00Z", "2m"),
            ("2026-12-01T11:00:00Z", "2h"),
            ("2026-12-04T08:00:00Z", "2d"),
            // Clocks differ.
            ("2026-12-01T08:59:00Z", "0s"),
        ];
        for (now, expected) in ages {
            assert_eq!(age(&object, at(now)), expected, "{now}");
        }
        assert_eq!(age(&json!({}), at("2026-12-01T09:00:00Z")), "-");
    }
}
