//! Conditions of the standard shape (Kubernetes API conventions, "Typical status properties"), and the trait of reasons. Knows no
//! kind: each has its own conditions and reasons, in its file.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::shapes;

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The state is unknown. It never counts as healthy.
    Unknown,
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition. Each type occurs once.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub about: String,
    /// Whether the condition is met.
    pub status: ConditionStatus,
    /// The generation of the spec that was evaluated.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// The reason, as a word for programs.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// The reason in words, with what to do.
    #[schemars(schema_with = "shapes::sentence")]
    pub message: String,
}

/// The schema of a list of conditions: one of each type.
pub(super) fn list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Condition>(),
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Why a condition of one kind has its status. The reason decides both the condition and the status, so no other pair can be
/// written.
pub trait Reason: Copy + 'static {
    /// All reasons, in the order of the reference.
    const ALL: &'static [Self];

    /// The conditions of the kind, each with its meaning when it is `True`.
    const CONDITIONS: &'static [(&'static str, &'static str)];

    /// The type of the condition.
    fn condition(self) -> &'static str;

    /// The status of the condition for this reason.
    fn standing(self) -> ConditionStatus;

    /// The reason as written into the object.
    fn word(self) -> &'static str;

    /// The meaning, and what to do.
    fn meaning(self) -> &'static str;

    /// The command or the field that helps if the condition is False. Empty if nothing has to be done.
    fn help(self) -> &'static str;

    /// Whether the operator must act. Without that, the state may pass by itself.
    fn needs_operator(self) -> bool;

    /// The reason with this word of a condition.
    fn find(condition: &str, word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.condition() == condition && reason.word() == word)
    }
}

/// The longest message.
const MESSAGE: usize = 1024;

/// A message with what helps, unless the message has that text. A long message is cut before it.
fn with_help(message: &str, help: &str) -> String {
    let cut = |length: usize| message.chars().take(length).collect::<String>();
    let whole = cut(MESSAGE);
    if whole.contains(help) {
        whole
    } else if whole.is_empty() {
        help.to_owned()
    } else {
        format!("{}; {help}", cut(MESSAGE.saturating_sub(help.chars().count() + 2)))
    }
}

/// Sets the condition of a reason. Returns true if that changed anything. The transition time changes only with the status.
pub fn set(conditions: &mut Vec<Condition>, reason: impl Reason, message: &str, generation: i64, now: &Time) -> bool {
    let found = conditions.iter().position(|condition| condition.about == reason.condition());
    let since = found.map(|at| &conditions[at]).filter(|condition| condition.status == reason.standing());
    let condition = Condition {
        about: reason.condition().to_owned(),
        status: reason.standing(),
        observed_generation: generation,
        last_transition_time: since.map_or(now, |condition| &condition.last_transition_time).clone(),
        reason: reason.word().to_owned(),
        message: with_help(message, reason.help()),
    };
    match found {
        Some(at) if conditions[at] == condition => return false,
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    true
}

/// The reasons of a kind: conditions, each with its meaning when it is `True`, and the reasons of each. `for operator` marks those
/// that need the operator. `helps` has the command or the field that helps.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident:
     $($(#[doc = $about:literal])+ $condition:ident {
         $($(#[doc = $meaning:literal])+ $reason:ident $(as $word:ident)? = $standing:ident $(for $who:ident)?
             $(helps $help:literal)?,)+
     })+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($($(#[doc = $meaning])+ $reason,)+)+ }

        impl $crate::objects::Reason for $name {
            const ALL: &'static [Self] = &[$($(Self::$reason,)+)+];
            const CONDITIONS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($condition), concat!($($about),+)),)+];

            fn condition(self) -> &'static str {
                match self { $($(Self::$reason => stringify!($condition),)+)+ }
            }

            fn standing(self) -> $crate::objects::ConditionStatus {
                match self { $($(Self::$reason => $crate::objects::ConditionStatus::$standing,)+)+ }
            }

            fn word(self) -> &'static str {
                match self { $($(Self::$reason => $crate::objects::condition::word!($reason $($word)?),)+)+ }
            }

            fn meaning(self) -> &'static str {
                match self { $($(Self::$reason => concat!($($meaning),+),)+)+ }
            }

            fn help(self) -> &'static str {
                match self { $($(Self::$reason => concat!($($help)?),)+)+ }
            }

            fn needs_operator(self) -> bool {
                match self { $($(Self::$reason => $crate::objects::condition::needs_operator!($($who)?),)+)+ }
            }
        }
    };
}

macro_rules! word {
    ($reason:ident) => {
        stringify!($reason)
    };
    ($reason:ident $word:ident) => {
        stringify!($word)
    };
}

macro_rules! needs_operator {
    () => {
        false
    };
    (operator) => {
        true
    };
}

pub(super) use needs_operator;
pub(super) use reasons;
pub(super) use word;

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        /// Of a test.
        Weather:
        /// It is dry.
        Dry {
            /// The sun shines.
            Sun = True,
            /// It rains: take an umbrella.
            Rain = False for operator helps "see `umbrella`",
            /// The sky was not observed.
            NotLooked = Unknown,
        }
        /// It is warm.
        Warm {
            /// The sky was not observed.
            WarmNotLooked as NotLooked = Unknown,
        }
    }

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn message_has_what_helps() {
        let help = Weather::Rain.help();
        assert_eq!((help, Weather::Sun.help()), ("see `umbrella`", ""));
        assert_eq!((with_help("", help), with_help("dry", "")), (help.to_owned(), "dry".to_owned()));
        for named in [help, "it rains; see `umbrella`", "see `umbrella` first"] {
            assert_eq!(with_help(named, help), named);
        }
        // A foreign error with such signs replaced what helps.
        for other in ["run `boots`", "see kubectl describe", "not correct: spec.coat", "annotate kaas.local/do"] {
            assert_eq!(with_help(other, help), format!("{other}; {help}"));
        }
        let long = "\u{fc}".repeat(2000);
        for long in [long.clone(), format!("{long}; {help}")] {
            let long = with_help(&long, help);
            assert!(long.chars().count() == MESSAGE && long.ends_with(help), "{long}");
        }
    }

    #[test]
    fn condition_keeps_its_time_until_its_status_changes() {
        const POURS: &str = "it pours; see `umbrella`";
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, Weather::NotLooked, "", 1, &at(1)));
        assert!(!set(&mut conditions, Weather::NotLooked, "", 1, &at(2)), "nothing is new");
        assert!(set(&mut conditions, Weather::WarmNotLooked, "", 1, &at(2)));
        assert!(set(&mut conditions, Weather::Rain, "it rains", 1, &at(3)));
        assert!(!set(&mut conditions, Weather::Rain, "it rains", 1, &at(3)), "with what helps");
        assert!(set(&mut conditions, Weather::Rain, "it pours", 2, &at(4)), "its message is new");
        assert_eq!(conditions.len(), 2);
        let dry = &conditions[0];
        assert_eq!((dry.about.as_str(), dry.reason.as_str(), dry.status), ("Dry", "Rain", ConditionStatus::False));
        assert_eq!((&dry.last_transition_time, dry.observed_generation, dry.message.as_str()), (&at(3), 2, POURS));
        let warm = &conditions[1];
        assert_eq!((warm.about.as_str(), warm.reason.as_str()), ("Warm", "NotLooked"));
        assert_eq!(Weather::Rain.meaning(), " It rains: take an umbrella.");
        assert!(Weather::Rain.needs_operator() && !Weather::NotLooked.needs_operator());
        let found = [("Warm", "NotLooked"), ("Warm", "Rain")].map(|(condition, word)| Weather::find(condition, word));
        assert_eq!(found, [Some(Weather::WarmNotLooked), None]);
        assert_eq!(Weather::CONDITIONS, [("Dry", " It is dry."), ("Warm", " It is warm.")]);
    }
}
