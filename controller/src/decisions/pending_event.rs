//! Which changes of an object's conditions become Events: those of a reason. Pure.

use std::collections::BTreeMap;

use crate::objects::{Condition, ConditionStatus};

/// The reasons of an object's conditions, by condition.
pub type Reasons = BTreeMap<String, String>;

/// The maximum size of an Event's note, in bytes (Kubernetes, `events.k8s.io/v1`, `Event.note`).
const LONGEST: usize = 1024;

/// Conditions whose every change becomes an Event.
const FOLLOWED: [&str; 5] = ["Preflight", "Progressing", "Ready", "VMReady", "NodeReady"];

/// Reasons that are not `True` and need no action.
const ON_ITS_WAY: [&str; 17] = [
    "AwaitingControlPlane",
    "Changing",
    "ClusterNotReady",
    "Deleting",
    "Draining",
    "Forming",
    "Idle",
    "Joining",
    "Kept",
    "NoTemplate",
    "NotReady",
    "Outdated",
    "Paused",
    "Provisioning",
    "RepairOff",
    "Replacing",
    "Scaling",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    pub about: String,
    pub reason: String,
    /// Its message, cut to the size of a note.
    pub note: String,
    /// Whether the operator may have to act.
    pub is_grave: bool,
}

pub fn reasons(conditions: &[Condition]) -> Reasons {
    conditions.iter().map(|condition| (condition.about.clone(), condition.reason.clone())).collect()
}

/// The Events for reasons that differ from `before`. Conditions outside `FOLLOWED` count only if the operator may have to act.
pub fn pending_events(before: &Reasons, conditions: &[Condition]) -> Vec<PendingEvent> {
    let is_new = |condition: &&Condition| before.get(&condition.about) != Some(&condition.reason);
    let told = conditions.iter().filter(is_new).filter_map(|condition| {
        let is_grave = condition.status != ConditionStatus::True && !ON_ITS_WAY.contains(&condition.reason.as_str());
        let is_told = is_grave || FOLLOWED.contains(&condition.about.as_str());
        is_told.then(|| PendingEvent {
            about: condition.about.clone(),
            reason: condition.reason.clone(),
            note: cut(&condition.message),
            is_grave,
        })
    });
    told.collect()
}

fn cut(text: &str) -> String {
    let fits = |end: &usize| *end <= LONGEST && text.is_char_boundary(*end);
    let end = (0..=text.len().min(LONGEST)).rev().find(fits).unwrap_or_default();
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::now;
    use crate::objects::{
        MachineReason, NodeImageReason, NodePoolReason, ProviderReason, Reason, TenantClusterReason, set,
    };

    /// Condition and word of each reason of the kinds with Events, with its status.
    fn all_reasons() -> Vec<(&'static str, &'static str, ConditionStatus)> {
        fn of<R: Reason>() -> Vec<(&'static str, &'static str, ConditionStatus)> {
            R::ALL.iter().map(|reason| (reason.condition(), reason.word(), reason.standing())).collect()
        }
        [
            of::<TenantClusterReason>(),
            of::<NodePoolReason>(),
            of::<MachineReason>(),
            of::<ProviderReason>(),
            of::<NodeImageReason>(),
        ]
        .concat()
    }

    #[test]
    fn new_reason_gives_one_event() {
        let mut conditions = Vec::new();
        let mut before = Reasons::new();
        let mut told = |reason: TenantClusterReason, words: &str| {
            set(&mut conditions, reason, words, 1, &now());
            let told = pending_events(&before, &conditions);
            before = reasons(&conditions);
            told.into_iter().map(|news| (news.about, news.reason, news.is_grave)).collect::<Vec<_>>()
        };
        let one = |about: &str, reason: &str, is_grave| vec![(about.to_owned(), reason.to_owned(), is_grave)];
        use TenantClusterReason::{Available, Blocked, ControlNodesReady, Degraded, Forming, Provisioning};
        assert_eq!(told(Provisioning, ""), one("Ready", "Provisioning", false));
        assert_eq!(told(Provisioning, "other words"), []);
        assert_eq!(told(Forming, ""), []);
        assert_eq!(told(Blocked, "see to it"), one("Progressing", "Blocked", true));
        assert_eq!(told(ControlNodesReady, ""), []);
        assert_eq!(told(Available, ""), one("Ready", "Available", false));
        assert_eq!(told(Degraded, "cp2"), one("ControlPlaneReady", "Degraded", true));
    }

    #[test]
    fn note_is_cut_to_the_event_size() {
        let mut conditions = Vec::new();
        set(&mut conditions, TenantClusterReason::Blocked, &"\u{fc}".repeat(2000), 1, &now());
        let note = &pending_events(&Reasons::new(), &conditions)[0].note;
        assert_eq!(note.len(), 1024);
    }

    #[test]
    fn listed_conditions_and_reasons_exist() {
        let all = all_reasons();
        for word in FOLLOWED {
            assert!(all.iter().any(|(about, ..)| *about == word), "{word}");
        }
        for word in ON_ITS_WAY {
            assert!(all.iter().any(|(_, reason, _)| *reason == word), "{word}");
        }
    }

    /// A new reason becomes a Warning by default. Add it to this list if the operator has to act, otherwise to [`ON_ITS_WAY`].
    #[test]
    fn each_negative_reason_is_classified() {
        const GRAVE: [&str; 54] = [
            "AddressesMissing",
            "AdoptionRequired",
            "AwaitingCommit",
            "AwaitingWindow",
            "BackingOff",
            "Blocked",
            "CapacityMissing",
            "ChangeBlocked",
            "ChangeFailed",
            "ChangeNotSupported",
            "ControlPlaneUnfit",
            "Degraded",
            "DrainBlocked",
            "Expired",
            "Gone",
            "ImageUnsuitable",
            "JoinFailed",
            "LoginRefused",
            "NameTaken",
            "NamespaceNotAllowed",
            "NoQuorum",
            "NodeLost",
            "NodeLostAwaitingOperator",
            "NotAsked",
            "NotKnown",
            "NotLoggedIn",
            "NotReached",
            "NotRead",
            "NotStamped",
            "NotSupported",
            "ObjectsMissing",
            "OtherAppliance",
            "OtherServer",
            "PodRangeExhausted",
            "PoweredOff",
            "PrivilegesMissing",
            "PropertiesRefused",
            "ProviderNotReached",
            "ProviderNotReady",
            "QuotaExceeded",
            "RangesOverlap",
            "ReferenceMissing",
            "SecretMissing",
            "SettingsRefused",
            "SomeMissing",
            "TooMany",
            "TooManyUnhealthy",
            "TooNew",
            "Unfit",
            "Unreachable",
            "Untrusted",
            "WorkersMissing",
            "WorkersNotReady",
            "ZoneInUse",
        ];
        let open = all_reasons().into_iter().filter(|(.., standing)| *standing != ConditionStatus::True);
        let mut all: Vec<&str> = open.map(|(_, word, _)| word).collect();
        all.retain(|word| !ON_ITS_WAY.contains(word));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, GRAVE);
    }
}
