//! The Lease that elects a leader, the mark of a former leader, and the next step of a candidate. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet::lease::WINDOW;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{Timestamp, ToSpan};
use kube::api::ObjectMeta;

use crate::objects::SYSTEM;
use crate::term::TERM;

pub const NAME: &str = "kaas-controller";

/// The name of a ConfigMap, the mark: if it exists, a controller may have led. It is created before the first election and never
/// deleted. It is of a different kind from the Lease, so that deleting all objects of one kind does not delete both.
pub const MARK: &str = "kaas-controller-led";
/// The description of the mark, for the operator.
const MARK_SAYS: &str = "A controller may have led here: where the Lease kaas-controller is removed, the next one waits until that one has \
                         ended. Do not remove both.";

/// The holder of a Lease that was created in place of a deleted one: its former holder is unknown.
pub const UNKNOWN: &str = "unknown";

/// How long after its last renewal another candidate may take the Lease. By then the term of the leader is over, and so is the
/// last permission of a cluster's lease.
pub const LEASE: Duration = TERM.saturating_add(WINDOW);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    Take(PreviousHolder),
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousHolder {
    /// There was no leader before: this candidate has created the mark, and the Lease after it.
    Nobody,
    /// The former leader released it, after all its work had ended.
    Released,
    /// The former leader did not renew it in time. It begins nothing more, but its last request may still arrive.
    Silent,
}

/// The spec of a Lease, and since when it has been unchanged.
#[derive(Clone, Debug)]
pub struct ObservedLease {
    spec: LeaseSpec,
    since: Duration,
}

impl ObservedLease {
    /// Records the Lease at a time of this machine's clock. Clocks of other machines are not used.
    pub fn noted(before: Option<Self>, lease: &Lease, now: Duration) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, since: now },
        }
    }

    /// The next step of the candidate with this name. It takes the Lease after it was unchanged for at least `patience`.
    pub fn next(&self, own: &str, now: Duration, patience: Duration) -> ElectionStep {
        let alone = now.saturating_sub(self.since);
        match self.spec.holder_identity.as_deref().unwrap_or_default() {
            "" if alone < patience => ElectionStep::Wait,
            "" => ElectionStep::Take(PreviousHolder::Released),
            // An earlier request took it, and the answer was lost. The leader before that is unknown.
            holder if holder == own => ElectionStep::Take(PreviousHolder::Silent),
            _ => {
                let said = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                let lasts = LEASE.max(Duration::from_secs(said.unwrap_or_default())).max(patience);
                if alone >= lasts { ElectionStep::Take(PreviousHolder::Silent) } else { ElectionStep::Wait }
            }
        }
    }
}

pub fn is_held_by(lease: &Lease, own: &str) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(own)
}

pub fn new(own: &str, now: Timestamp) -> Lease {
    taken(&Lease { metadata: named(NAME), spec: None }, own, now)
}

pub fn mark() -> ConfigMap {
    let says = BTreeMap::from([("kubernetes.io/description".to_owned(), MARK_SAYS.to_owned())]);
    ConfigMap { metadata: ObjectMeta { annotations: Some(says), ..named(MARK) }, ..ConfigMap::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(SYSTEM.to_owned()), ..ObjectMeta::default() }
}

/// The Lease, held by this name from now on.
pub fn taken(lease: &Lease, own: &str, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let spec = LeaseSpec {
        holder_identity: Some(own.to_owned()),
        acquire_time: Some(MicroTime(now)),
        lease_transitions: Some(before.lease_transitions.unwrap_or_default().saturating_add(1)),
        lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
        ..before
    };
    renewed(&Lease { spec: Some(spec), ..lease.clone() }, now)
}

/// The Lease, renewed. The time always differs from the former one, even if the clock did not advance: candidates compare the
/// specs.
pub fn renewed(lease: &Lease, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let now = match &before.renew_time {
        Some(MicroTime(last)) if *last == now => now.checked_add(1.microsecond()).unwrap_or(now),
        _ => now,
    };
    Lease { spec: Some(LeaseSpec { renew_time: Some(MicroTime(now)), ..before }), ..lease.clone() }
}

pub fn released(lease: &Lease) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    Lease { spec: Some(LeaseSpec { holder_identity: Some(String::new()), ..before }), ..lease.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn an_expired_lease_is_taken() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = new("one", at(1000));
        let seen = ObservedLease::noted(None, &lease, second(5));
        assert_eq!(seen.next("two", second(24), NONE), ElectionStep::Wait);
        assert_eq!(seen.next("two", second(25), NONE), ElectionStep::Take(PreviousHolder::Silent));
        // The clock may not have advanced: the renewed Lease differs anyway.
        let again = renewed(&lease, at(1000));
        let seen = ObservedLease::noted(Some(seen), &again, second(24));
        assert_eq!(seen.next("two", second(43), NONE), ElectionStep::Wait);
        let seen = ObservedLease::noted(Some(seen), &again, second(43));
        assert_eq!(seen.next("two", second(44), NONE), ElectionStep::Take(PreviousHolder::Silent));
        let with = |seconds| {
            let mut lease = lease.clone();
            lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
            ObservedLease::noted(None, &lease, second(0))
        };
        assert_eq!(with(Some(60)).next("two", second(59), NONE), ElectionStep::Wait);
        for nonsense in [None, Some(0), Some(-5), Some(1)] {
            assert_eq!(with(nonsense).next("two", second(19), NONE), ElectionStep::Wait, "{nonsense:?}");
        }
    }

    #[test]
    fn a_released_lease_is_taken_and_counted() {
        let now = Timestamp::from_second(1000).unwrap();
        let lease = released(&renewed(&new("one", now), now));
        assert!(!is_held_by(&lease, "one"));
        assert_eq!(
            ObservedLease::noted(None, &lease, second(0)).next("two", second(0), NONE),
            ElectionStep::Take(PreviousHolder::Released)
        );
        let lease = taken(&lease, "two", now);
        assert!(is_held_by(&lease, "two"));
        assert_eq!(lease.spec.as_ref().unwrap().lease_transitions, Some(2));
        assert_eq!(
            ObservedLease::noted(None, &lease, second(0)).next("two", second(0), NONE),
            ElectionStep::Take(PreviousHolder::Silent)
        );
    }

    #[test]
    fn a_patient_candidate_takes_its_own_lease_immediately() {
        let (now, patience) = (Timestamp::from_second(1000).unwrap(), second(60));
        let held = new("one", now);
        for lease in [held.clone(), released(&held)] {
            let seen = ObservedLease::noted(None, &lease, second(5));
            assert_eq!(seen.next("two", second(64), patience), ElectionStep::Wait);
            assert!(matches!(seen.next("two", second(65), patience), ElectionStep::Take(_)));
            // Each renewal starts the wait again.
            let seen = ObservedLease::noted(Some(seen), &renewed(&lease, now), second(60));
            assert_eq!(seen.next("two", second(119), patience), ElectionStep::Wait);
        }
        assert_eq!(
            ObservedLease::noted(None, &held, second(5)).next("one", second(5), patience),
            ElectionStep::Take(PreviousHolder::Silent)
        );
    }
}
