//! Decisions, alone and in simulated clusters that lose messages, power and disks.

use contract::pod_security::PodSecurity;
use proptest::prelude::*;
use uuid::Uuid;

use crate::cluster::rendezvous::meeting::{Answer, CLOCK_LIMIT, Own, PeerState, Verdict, check_hello, judge};
use crate::cluster::rendezvous::message::{Facts, Hello};
use crate::cluster::rendezvous::{Membership, Progress, WaitReason};
use crate::intake::config::fixture::{in_a_tenant, three_nodes};

fn cluster(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn own(first: bool, state: Membership) -> Own {
    Own { first, state, quorum: false }
}

fn said(first: bool, state: Membership) -> Answer {
    Answer { first, peer_state: Ok(PeerState { state, yours: None }) }
}

fn silent(first: bool, why: WaitReason) -> Answer {
    Answer { first, peer_state: Err(why) }
}

/// A replacement gets these settings alone.
#[test]
fn replacement_gets_all_facts_of_the_members() {
    type Change = fn(&mut crate::intake::config::Cluster);
    let changes: [Change; 10] = [
        |cluster| cluster.name.push('x'),
        |cluster| drop(cluster.control_nodes.pop()),
        |cluster| cluster.virtual_address = None,
        |cluster| cluster.kubernetes_minor = "1.35".to_owned(),
        |cluster| cluster.pod_cidr = cluster.service_cidr,
        |cluster| cluster.service_cidr = cluster.pod_cidr,
        |cluster| cluster.node_prefix = 25,
        |cluster| cluster.vxlan_port += 1,
        |cluster| cluster.pod_security = PodSecurity::Privileged,
        |cluster| cluster.add_ons.metrics = !cluster.add_ons.metrics,
    ];
    let before = in_a_tenant(three_nodes());
    for (number, change) in changes.into_iter().enumerate() {
        let mut after = before.clone();
        change(&mut after.cluster);
        assert_eq!(Facts::of(&before, "i").differences(&Facts::of(&after, "i")).len(), 1, "{number}");
        let (before, after) = (before.agreed(), after.agreed());
        assert_eq!(before.iter().filter(|(key, value)| after[*key] != **value).count(), 1, "{number}");
    }
}

#[test]
fn first_node_forms_only_if_all_are_unformed() {
    let blank = own(true, Membership::Unformed);
    assert_eq!(judge(&blank, &[]), Verdict::Form, "a single node");
    let unformed = || said(false, Membership::Unformed);
    assert_eq!(judge(&blank, &[unformed(), unformed()]), Verdict::Form);
    for (other, why) in [
        (silent(false, WaitReason::NoAnswer), WaitReason::NoAnswer),
        (silent(false, WaitReason::Closed), WaitReason::Closed),
        (said(false, Membership::Forming(cluster(1))), WaitReason::InCluster),
        (said(false, Membership::Formed(cluster(1))), WaitReason::InCluster),
    ] {
        assert_eq!(judge(&blank, &[unformed(), other]), Verdict::Wait(vec![None, Some(why)]));
    }
    let Verdict::Wait(against) = judge(&blank, &[unformed(), said(false, Membership::Receiving)]) else { panic!() };
    assert!(matches!(against[1], Some(WaitReason::Busy(_))));
}

#[test]
fn others_fetch_after_the_first_nodes_decision() {
    let blank = own(false, Membership::Unformed);
    let decided = said(true, Membership::Forming(cluster(1)));
    for other in [
        silent(false, WaitReason::NoAnswer),
        silent(false, WaitReason::Closed),
        said(false, Membership::Unformed),
        said(false, Membership::Formed(cluster(1))),
    ] {
        assert_eq!(judge(&blank, &[decided.clone(), other]), Verdict::Fetch(cluster(1)));
    }
    assert_eq!(
        judge(&blank, &[decided, said(false, Membership::Forming(cluster(2)))]),
        Verdict::Wait(vec![None, Some(WaitReason::OtherCluster)])
    );
    let waits = |first, why| assert_eq!(judge(&blank, &[first]), Verdict::Wait(vec![Some(why)]));
    waits(silent(true, WaitReason::NoAnswer), WaitReason::NoAnswer);
    waits(silent(true, WaitReason::Closed), WaitReason::Closed);
    waits(said(true, Membership::Formed(cluster(1))), WaitReason::Lost);
    let knows = PeerState { state: Membership::Forming(cluster(1)), yours: Some(Progress::Joined) };
    waits(Answer { first: true, peer_state: Ok(knows) }, WaitReason::Lost);
    let knows = PeerState { state: Membership::Forming(cluster(1)), yours: Some(Progress::HandedOver) };
    let handed_over = Answer { first: true, peer_state: Ok(knows) };
    assert_eq!(judge(&blank, &[handed_over]), Verdict::Fetch(cluster(1)), "its disk was changed before it joined");
}

#[test]
fn member_relies_only_on_its_clusters_first_node() {
    let member = own(false, Membership::Forming(cluster(1)));
    let judge = |first| judge(&member, &[first, silent(false, WaitReason::NoAnswer)]);
    assert_eq!(judge(said(true, Membership::Forming(cluster(1)))), Verdict::Proceed);
    assert_eq!(judge(said(true, Membership::Unformed)), Verdict::Wait(vec![Some(WaitReason::Blank), None]));
    assert_eq!(
        judge(said(true, Membership::Forming(cluster(2)))),
        Verdict::Wait(vec![Some(WaitReason::OtherCluster), None])
    );
}

#[test]
fn introductions_are_checked() {
    let config = super::over_tcp::config(0);
    let facts = Facts::of(&config, "image 1");
    let (own, other) = (cluster(1), cluster(2));
    let hello = Hello {
        node: "node-2".to_owned(),
        instance: other,
        state: Membership::Unformed,
        facts: facts.clone(),
        clock: 1_000_000,
        yours: None,
    };
    let hear = |hello: &Hello, clock| check_hello("node-2", (&facts, own, clock), hello);
    assert!(hear(&hello, 1_000_000).is_ok());
    assert!(hear(&hello, 1_000_000 + CLOCK_LIMIT).is_ok());
    assert_eq!(hear(&hello, 1_000_001 + CLOCK_LIMIT), Err(WaitReason::Clock(-1801)));
    assert_eq!(hear(&hello, 999_999 - CLOCK_LIMIT), Err(WaitReason::Clock(1801)));
    assert_eq!(hear(&hello, 0), Err(WaitReason::Clock(1_000_000)));
    assert_eq!(hear(&Hello { clock: u64::MAX, ..hello.clone() }, 0), Err(WaitReason::Clock(i64::MAX)));
    assert_eq!(hear(&Hello { instance: own, ..hello.clone() }, 1_000_000), Err(WaitReason::Ourselves));
    let renamed = Hello { node: "node-3".to_owned(), ..hello.clone() };
    assert_eq!(hear(&renamed, 1_000_000), Err(WaitReason::Misplaced("node-3".to_owned())));

    let mut theirs = config;
    theirs.cluster.pod_cidr = "10.9.0.0/16".parse().unwrap();
    theirs.cluster.name = "elsewhere".to_owned();
    let theirs = crate::intake::config::fixture::in_a_tenant(theirs);
    let different = Hello { facts: Facts::of(&theirs, "image 1"), ..hello };
    let words = hear(&different, 1_000_000).unwrap_err().to_string();
    assert_eq!(
        words,
        "its cluster name is elsewhere, here it is blue, its pod CIDR is 10.9.0.0/16, here it is 10.244.0.0/16, \
         its role is tenant-control-plane, here it is control-plane"
    );
}

/// The events of simulated nodes 0 (the first), 1 and 2.
#[derive(Clone, Debug)]
enum Event {
    /// A node asks. If bit n of `reach` is set, it reaches node n in this round. Between the answers and the decision,
    /// `meanwhile` happens.
    Round { node: usize, reach: u8, meanwhile: Vec<Event> },
    /// The bundle that is on its way to a node arrives and is saved.
    Arrival { node: usize },
    /// A node's power is cut: a bundle on its way to it is lost.
    PowerCut { node: usize },
    /// A node loses its disk, and power before that.
    DiskLoss { node: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let small = prop_oneof![
        3 => (1..3usize).prop_map(|node| Event::Arrival { node }),
        1 => (0..3usize).prop_map(|node| Event::PowerCut { node }),
    ];
    prop_oneof![
        6 => (0..3usize, 0..8u8, prop::collection::vec(small.clone(), 0..2))
            .prop_map(|(node, reach, meanwhile)| Event::Round { node, reach, meanwhile }),
        3 => small,
        1 => (0..3usize).prop_map(|node| Event::DiskLoss { node }),
    ]
}

#[derive(Default)]
struct Cluster {
    saved: [Option<Uuid>; 3],
    /// A bundle on its way to a node.
    coming: [Option<Uuid>; 3],
    decided: u128,
}

impl Cluster {
    fn state(&self, node: usize) -> Membership {
        match (self.saved[node], self.coming[node]) {
            (Some(cluster), _) => Membership::Forming(cluster),
            (None, Some(_)) => Membership::Receiving,
            (None, None) => Membership::Unformed,
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Arrival { node } => {
                if let Some(cluster) = self.coming[*node].take() {
                    self.saved[*node].get_or_insert(cluster);
                }
            }
            Event::PowerCut { node } => self.coming[*node] = None,
            Event::DiskLoss { node } => {
                self.coming[*node] = None;
                self.saved[*node] = None;
            }
            Event::Round { node, reach, meanwhile } => {
                let answers: Vec<_> = (0..3)
                    .filter(|other| other != node)
                    .map(|other| {
                        if reach & (1 << other) == 0 {
                            silent(other == 0, WaitReason::NoAnswer)
                        } else {
                            said(other == 0, self.state(other))
                        }
                    })
                    .collect();
                for event in meanwhile {
                    self.happen(event);
                }
                // A node whose power was cut in between decides nothing.
                if meanwhile.iter().any(|event| matches!(event, Event::PowerCut { node: cut } if cut == node)) {
                    return;
                }
                match judge(&own(*node == 0, self.state(*node)), &answers) {
                    Verdict::Form => {
                        assert_eq!(*node, 0, "only the first decides");
                        assert_eq!(self.saved, [None; 3], "a second cluster beside a living one");
                        assert_eq!(self.coming, [None; 3], "a second cluster beside one on its way");
                        self.decided += 1;
                        self.saved[0] = Some(cluster(self.decided));
                    }
                    // The request reaches the first node in its present state.
                    Verdict::Fetch(cluster) => {
                        if self.saved[0] == Some(cluster) {
                            self.coming[*node] = Some(cluster);
                        }
                    }
                    Verdict::Admitted(..) => panic!("nobody admits anybody here"),
                    Verdict::Proceed | Verdict::Wait(_) => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn there_is_never_a_second_cluster(events in prop::collection::vec(event(), 1..60)) {
        let mut simulated = Cluster::default();
        for event in &events {
            simulated.happen(event);
            let mut living: Vec<_> = simulated.saved.iter().flatten().collect();
            living.dedup();
            prop_assert!(living.len() <= 1, "{:?}", simulated.saved);
        }
    }

    /// For any events, if no disk was lost: once all reach each other, all nodes are in one cluster.
    #[test]
    fn all_meet_once_the_network_works(events in prop::collection::vec(event(), 0..40)) {
        let mut simulated = Cluster::default();
        for event in events.iter().filter(|event| !matches!(event, Event::DiskLoss { .. })) {
            simulated.happen(event);
        }
        for _ in 0..4 {
            for node in 0..3 {
                simulated.happen(&Event::Round { node, reach: 7, meanwhile: Vec::new() });
                simulated.happen(&Event::Arrival { node });
            }
        }
        prop_assert!(simulated.saved[0].is_some());
        prop_assert!(simulated.saved.iter().all(|saved| *saved == simulated.saved[0]));
    }
}
