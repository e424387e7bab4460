//! Decides from single looks whether keepalived may hold the virtual IP.

use std::time::{Duration, Instant};

/// How many looks in a row must fail before this node gives up the virtual IP …
const LOOKS: u32 = 3;

/// … and they must last so long. An election of etcd's leader is no outage.
const REFUSING: Duration = Duration::from_secs(2);

/// The same while answers are only late. Under load no other node would be quicker, and all clients would have to reconnect.
const LATE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Serves,
    Late,
    /// It answers no, cannot be reached, or has no etcd.
    Refuses,
    /// Its etcd was asked to stop.
    Stops,
}

/// Whether the API on this node serves. It does at once after a look that says so. It no longer does when its etcd was asked to
/// stop, or after some failed looks in a row.
#[derive(Debug, Default)]
pub(super) struct ApiHealth {
    serves: bool,
    doubt: Option<Doubt>,
}

#[derive(Debug)]
struct Doubt {
    since: Instant,
    looks: u32,
    /// How many of the last looks in a row are refusals.
    refusals: u32,
}

impl ApiHealth {
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Whether keepalived may hold the virtual IP. `None` if nothing changes, because the API of a node that is `alone` does
    /// not serve. No other node could take the address. Giving it up would only end clients' connections, for longer than a
    /// restart of etcd lasts.
    pub(super) fn told(&self, alone: bool) -> Option<bool> {
        (self.serves || !alone).then_some(self.serves)
    }

    pub(super) fn doubts(&self) -> bool {
        self.doubt.is_some()
    }

    /// Judges by a look that ran from `began` to `now`. Returns whether that ends the service.
    pub(super) fn note(&mut self, look: Look, began: Instant, now: Instant) -> bool {
        if look == Look::Serves {
            *self = Self { serves: true, doubt: None };
            return false;
        }
        let doubt = self.doubt.get_or_insert(Doubt { since: began, looks: 0, refusals: 0 });
        doubt.looks = doubt.looks.saturating_add(1);
        doubt.refusals = if look == Look::Refuses { doubt.refusals.saturating_add(1) } else { 0 };
        // An API that refuses, after it was late, has failed more than once.
        let least = if doubt.refusals > 1 { REFUSING } else { LATE };
        let lasts = doubt.looks >= LOOKS && now.duration_since(doubt.since) >= least;
        // A stop is certain, and lasts for seconds.
        let over = look == Look::Stops || lasts;
        over && std::mem::replace(&mut self.serves, false)
    }
}

#[cfg(test)]
mod tests {
    use super::Look::{Late, Refuses, Serves, Stops};
    use super::*;

    /// Whether the API serves after each of these looks. Begin and end are in milliseconds from now.
    fn judged(looks: &[(u64, u64, Look)]) -> Vec<bool> {
        let start = Instant::now();
        let at = |time| start + Duration::from_millis(time);
        let mut judgement = ApiHealth::default();
        let judge = |(began, ended, look): &(u64, u64, Look)| {
            judgement.note(*look, at(*began), at(*ended));
            judgement.serves()
        };
        looks.iter().map(judge).collect()
    }

    #[test]
    fn it_serves_from_the_first_good_look_on() {
        assert_eq!(judged(&[(0, 0, Refuses), (500, 500, Serves)]), [false, true]);
    }

    #[test]
    fn an_election_of_etcds_leader_ends_no_service() {
        let away = |from: u64| (from, from, Refuses);
        let looks = [(0, 0, Serves), away(1000), away(1500), away(2000), away(2500), (3000, 3000, Serves)];
        assert_eq!(judged(&looks), [true; 6]);
    }

    #[test]
    fn service_ends_after_two_seconds_without_etcd() {
        let away = |from: u64| (from, from, Refuses);
        let looks = [(0, 0, Serves), away(1000), away(1500), away(2000), away(2500), away(3000)];
        assert_eq!(judged(&looks), [true, true, true, true, true, false]);
    }

    #[test]
    fn service_ends_at_once_when_etcd_stops() {
        assert_eq!(judged(&[(0, 0, Serves), (1000, 1000, Stops), (1500, 1500, Serves)]), [true, false, true]);
    }

    #[test]
    fn single_node_never_gives_up_the_address() {
        let now = Instant::now();
        let mut judgement = ApiHealth::default();
        for (look, with_others, alone) in
            [(Refuses, Some(false), None), (Serves, Some(true), Some(true)), (Stops, Some(false), None)]
        {
            judgement.note(look, now, now);
            assert_eq!((judgement.told(false), judgement.told(true)), (with_others, alone), "{look:?}");
        }
    }

    #[test]
    fn hanging_request_counts_from_its_begin() {
        let looks = [(0, 0, Serves), (1000, 3000, Late), (3500, 3500, Refuses), (4000, 4000, Refuses)];
        assert_eq!(judged(&looks), [true, true, true, false]);
    }

    #[test]
    fn service_ends_after_late_answers_for_fifteen_seconds() {
        let late = |from: u64| (from, from + 2000, Late);
        let looks: Vec<_> =
            [0].map(|at| (at, at, Serves)).into_iter().chain((1..8).map(|at| late(at * 2500))).collect();
        assert_eq!(judged(&looks), [true, true, true, true, true, true, true, false]);
    }

    #[test]
    fn one_refusal_among_late_answers_ends_nothing() {
        let looks =
            [(0, 0, Serves), (1000, 3000, Late), (3500, 5500, Late), (6000, 6000, Refuses), (6500, 6500, Serves)];
        assert_eq!(judged(&looks), [true; 5]);
    }
}
