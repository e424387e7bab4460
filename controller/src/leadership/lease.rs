//! The Lease by which a leader is elected, the mark that one was, and what a candidate does next. Pure.

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

/// The name of a ConfigMap: where it is, a controller may have led. It is made before the first one is elected, and stays. It is of another
/// kind than the Lease: who removes all of one kind does not remove both.
pub const MARK: &str = "kaas-controller-led";
/// What a person reads there.
const MARK_SAYS: &str = "A controller may have led here: where the Lease kaas-controller is removed, the next one waits until that one has \
                         ended. Do not remove both.";

/// Who may have held a Lease that was removed.
pub const UNKNOWN: &str = "nobody that is known";

/// How long after its last renewal a lease may be another's. The leader has begun nothing for a while by then: its term is over, and
/// so is what a hold of a cluster has permitted last.
pub const LEASE: Duration = TERM.saturating_add(WINDOW);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// It makes the Lease its own.
    Take(PreviousHolder),
    /// It looks again after a while.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousHolder {
    /// Nobody at all: this one has made the mark, and the Lease after it.
    Nobody,
    /// Somebody who has given it back, and had ended all work by then.
    Released,
    /// Somebody who was not heard for so long that nothing more is begun; what was begun last may still arrive.
    Silent,
}

/// A Lease as it was seen, since when.
#[derive(Clone, Debug)]
pub struct ObservedLease {
    spec: LeaseSpec,
    since: Duration,
}

impl ObservedLease {
    /// Notes how it is at a time of this machine's own clock: those of other machines are not gone by.
    pub fn noted(before: Option<Self>, lease: &Lease, now: Duration) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, since: now },
        }
    }

    /// What whoever has this name does at this time, who takes nothing that others may want before it was left alone for so long.
    pub fn next(&self, own: &str, now: Duration, patience: Duration) -> ElectionStep {
        let alone = now.saturating_sub(self.since);
        match self.spec.holder_identity.as_deref().unwrap_or_default() {
            "" if alone < patience => ElectionStep::Wait,
            "" => ElectionStep::Take(PreviousHolder::Released),
            // By a request whose answer was lost. Who led before that is not known any more.
            holder if holder == own => ElectionStep::Take(PreviousHolder::Silent),
            _ => {
                let said = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                let lasts = LEASE.max(Duration::from_secs(said.unwrap_or_default())).max(patience);
                if alone >= lasts { ElectionStep::Take(PreviousHolder::Silent) } else { ElectionStep::Wait }
            }
        }
    }
}

/// Whether somebody holds it.
pub fn is_held_by(lease: &Lease, own: &str) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(own)
}

/// A Lease that nobody has made yet, held by this one.
pub fn new(own: &str, now: Timestamp) -> Lease {
    taken(&Lease { metadata: named(NAME), spec: None }, own, now)
}

/// The mark that a controller may have led.
pub fn mark() -> ConfigMap {
    let says = BTreeMap::from([("kubernetes.io/description".to_owned(), MARK_SAYS.to_owned())]);
    ConfigMap { metadata: ObjectMeta { annotations: Some(says), ..named(MARK) }, ..ConfigMap::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(SYSTEM.to_owned()), ..ObjectMeta::default() }
}

/// The same Lease, held by this one from now on.
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

/// The same Lease, renewed. It is another one than before, whatever the clock says: that is what candidates go by.
pub fn renewed(lease: &Lease, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let now = match &before.renew_time {
        Some(MicroTime(last)) if *last == now => now.checked_add(1.microsecond()).unwrap_or(now),
        _ => now,
    };
    Lease { spec: Some(LeaseSpec { renew_time: Some(MicroTime(now)), ..before }), ..lease.clone() }
}

/// The same Lease, held by nobody.
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
    fn a_lease_is_taken_once_it_was_not_renewed_for_as_long_as_it_says_and_never_less() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = new("one", at(1000));
        let seen = ObservedLease::noted(None, &lease, second(5));
        assert_eq!(seen.next("two", second(24), NONE), ElectionStep::Wait);
        assert_eq!(seen.next("two", second(25), NONE), ElectionStep::Take(PreviousHolder::Silent));
        // Its clock may stand still: what was renewed is another one all the same.
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
    fn what_was_given_back_is_taken_at_once_and_each_change_of_hands_is_counted() {
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
    fn who_is_patient_takes_what_others_leave_alone_and_its_own_at_once() {
        let (now, patience) = (Timestamp::from_second(1000).unwrap(), second(60));
        let held = new("one", now);
        for lease in [held.clone(), released(&held)] {
            let seen = ObservedLease::noted(None, &lease, second(5));
            assert_eq!(seen.next("two", second(64), patience), ElectionStep::Wait);
            assert!(matches!(seen.next("two", second(65), patience), ElectionStep::Take(_)));
            // Each renewal begins the wait anew.
            let seen = ObservedLease::noted(Some(seen), &renewed(&lease, now), second(60));
            assert_eq!(seen.next("two", second(119), patience), ElectionStep::Wait);
        }
        assert_eq!(
            ObservedLease::noted(None, &held, second(5)).next("one", second(5), patience),
            ElectionStep::Take(PreviousHolder::Silent)
        );
    }
}
