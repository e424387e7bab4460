//! Computes the conditions of a Provider, from its observed state or the error of the look. Pure.

use crate::decisions::VCenterInventory;
use crate::decisions::provider::{ProviderCondition, privileged};
use crate::objects::{ConditionStatus, ProviderReason as Reason, Reason as _};
use crate::reach::providers::UnavailableReason;

/// All four conditions, in their order. `moved` are zones that changed their place while they have Machines.
pub fn conditions(looked: Result<&VCenterInventory, &UnavailableReason>, moved: &[String]) -> [ProviderCondition; 4] {
    let [reachable, authenticated, privileged] = match looked {
        Ok(seen) => [
            (Reason::Connected, seen.version.clone()),
            (Reason::LoggedIn, format!("logged in as {}", seen.user)),
            privileged(seen),
        ],
        Err(why) => {
            let words = why.to_string();
            let not_asked = (Reason::PrivilegesNotAsked, String::new());
            match why {
                UnavailableReason::NoAnswer(_)
                | UnavailableReason::BackingOff { .. }
                | UnavailableReason::Hypervisor(_) => unreached(Reason::Unreachable, words),
                UnavailableReason::Untrusted(_) => unreached(Reason::Untrusted, words),
                UnavailableReason::OtherServer(_) | UnavailableReason::Unknown => unreached(Reason::OtherServer, words),
                UnavailableReason::LoginRefused(_) => {
                    [(Reason::Connected, String::new()), (Reason::LoginRefused, words), not_asked]
                }
                UnavailableReason::Secret(_) => {
                    [(Reason::NotAsked, String::new()), (Reason::SecretMissing, words), not_asked]
                }
                UnavailableReason::NotKnown(_) => unreached(Reason::NotAsked, words),
            }
        }
    };
    let ready = ready(looked, moved, &[&reachable, &authenticated, &privileged]);
    [reachable, authenticated, privileged, ready]
}

fn unreached(reason: Reason, words: String) -> [ProviderCondition; 3] {
    [(reason, words), (Reason::LoginNotAsked, String::new()), (Reason::PrivilegesNotAsked, String::new())]
}

fn ready(
    looked: Result<&VCenterInventory, &UnavailableReason>,
    moved: &[String],
    others: &[&ProviderCondition; 3],
) -> ProviderCondition {
    if let Err(why @ UnavailableReason::BackingOff { .. }) = looked {
        return (Reason::BackingOff, why.to_string());
    }
    let is = |standing: ConditionStatus| others.iter().find(|(reason, _)| reason.standing() == standing);
    if let Some((reason, _)) = is(ConditionStatus::False) {
        return (Reason::NotReady, format!("see the condition {}", reason.condition()));
    }
    if !moved.is_empty() {
        return (Reason::ZoneInUse, moved.join("; "));
    }
    if let Some((reason, _)) = is(ConditionStatus::Unknown) {
        return (Reason::NotKnown, format!("{} is not known", reason.condition()));
    }
    match looked {
        Ok(seen) if !seen.closed.is_empty() => {
            (Reason::Available, format!("not everywhere now: {}", seen.closed.join("; ")))
        }
        _ => (Reason::Available, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::Failure;

    fn words(looked: Result<&VCenterInventory, &UnavailableReason>, moved: &[String]) -> [&'static str; 4] {
        conditions(looked, moved).map(|(reason, _)| reason.word())
    }

    #[test]
    fn each_error_of_a_vcenter_has_its_conditions() {
        let text = str::to_owned;
        let resting = UnavailableReason::BackingOff { seconds: 15, until: text("noon"), why: text("no route") };
        for (why, expected) in [
            (UnavailableReason::NoAnswer(text("no route")), ["Unreachable", "NotReached", "NotLoggedIn", "NotReady"]),
            (resting, ["Unreachable", "NotReached", "NotLoggedIn", "BackingOff"]),
            (UnavailableReason::Untrusted(text("x")), ["Untrusted", "NotReached", "NotLoggedIn", "NotReady"]),
            (UnavailableReason::OtherServer(text("x")), ["OtherServer", "NotReached", "NotLoggedIn", "NotReady"]),
            (UnavailableReason::Secret(text("x")), ["NotAsked", "SecretMissing", "NotLoggedIn", "NotReady"]),
            (UnavailableReason::LoginRefused(text("x")), ["Connected", "LoginRefused", "NotLoggedIn", "NotReady"]),
            (UnavailableReason::NotKnown(Failure::Missing), ["NotAsked", "NotReached", "NotLoggedIn", "NotKnown"]),
        ] {
            assert_eq!(words(Err(&why), &[]), expected, "{why:?}");
        }
    }

    #[test]
    fn a_complete_vcenter_is_available() {
        let seen = VCenterInventory {
            version: "vCenter 8".to_owned(),
            user: "kaas".to_owned(),
            ..VCenterInventory::default()
        };
        assert_eq!(words(Ok(&seen), &[]), ["Connected", "LoggedIn", "Complete", "Available"]);
        let closed =
            VCenterInventory { closed: vec!["the datastore a: it is in maintenance".to_owned()], ..seen.clone() };
        let told = conditions(Ok(&closed), &[]);
        assert_eq!((told[3].0.word(), told[3].1.contains("maintenance")), ("Available", true));
        let absent =
            VCenterInventory { absent: vec!["the folder x".to_owned()], missing: vec!["p".to_owned()], ..seen.clone() };
        assert_eq!(words(Ok(&absent), &[]), ["Connected", "LoggedIn", "ObjectsMissing", "NotReady"]);
        let missing = VCenterInventory { absent: Vec::new(), ..absent };
        let told = conditions(Ok(&missing), &[]);
        assert_eq!((told[2].0.word(), told[2].1.as_str()), ("PrivilegesMissing", "kaas lacks p"));
        assert_eq!(words(Ok(&seen), &["moved".to_owned()]), ["Connected", "LoggedIn", "Complete", "ZoneInUse"]);
    }
}
