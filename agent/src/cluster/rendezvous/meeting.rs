//! The decisions of the rendezvous, without any input or output.
//!
//! One round asks every peer once. [`judge`] decides from this node's own state and the answers of that one round.
//! Answers of different rounds are never mixed: a peer that answered earlier may have lost its disk, or received a
//! bundle, since.

use uuid::Uuid;

use super::message::{Facts, Hello, Membership, Progress};
use super::report::WaitReason;

/// The largest difference between the clocks of control-plane nodes that meet, in seconds.
pub const CLOCK_LIMIT: u64 = 30 * 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Whether this node is the first of the list.
    pub first: bool,
    /// The progress of its forming.
    pub state: Membership,
    /// Whether enough nodes hold their bundle for etcd to have a quorum. Only the first node knows.
    pub quorum: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub first: bool,
    /// The peer's state, or the reason why there is no valid answer.
    pub peer_state: Result<PeerState, WaitReason>,
}

/// The part of a peer's introduction that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// The progress of its forming.
    pub state: Membership,
    /// This node's progress, as the peer knows it.
    pub yours: Option<Progress>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In this round, every listed node reported that it belongs to no cluster. The first node makes the CAs.
    Form,
    /// The first node is forming this cluster: get the bundle from it.
    Fetch(Uuid),
    /// The members of this cluster admit this node: get the bundle from the one at this position of the answers.
    Admitted(usize, Uuid),
    /// This node has reached its aim.
    Proceed,
    /// Ask again. For each answer, in order: the reason to wait, if any.
    Wait(Vec<Option<WaitReason>>),
}

pub fn check_hello(expected: &str, own: (&Facts, Uuid, u64), hello: &Hello) -> Result<PeerState, WaitReason> {
    let (facts, instance, clock) = own;
    if hello.instance == instance {
        return Err(WaitReason::Ourselves);
    }
    let differences = facts.differences(&hello.facts);
    if !differences.is_empty() {
        return Err(WaitReason::Disagrees(differences));
    }
    if hello.node != expected {
        return Err(WaitReason::Misplaced(hello.node.clone()));
    }
    if clock.abs_diff(hello.clock) > CLOCK_LIMIT {
        let apart = i64::try_from(clock.abs_diff(hello.clock)).unwrap_or(i64::MAX);
        return Err(WaitReason::Clock(if hello.clock > clock { apart } else { -apart }));
    }
    Ok(PeerState { state: hello.state, yours: hello.yours })
}

/// The decision after one round. `answers` has one for each peer.
pub fn judge(own: &Own, answers: &[Answer]) -> Verdict {
    if own.state.cluster().is_none()
        && let Some(admitted) = admitted(answers)
    {
        return admitted;
    }
    match (own.first, own.state) {
        (true, Membership::Unformed | Membership::Receiving) => form(answers),
        (true, Membership::Forming(cluster) | Membership::Formed(cluster) | Membership::Admitting(cluster)) => {
            hand_over(own, cluster, answers)
        }
        (false, Membership::Unformed | Membership::Receiving) => fetch(answers),
        (false, Membership::Forming(cluster) | Membership::Formed(cluster) | Membership::Admitting(cluster)) => {
            stay(cluster, answers)
        }
    }
}

/// A member that has proved the one-time code has drawn it: the other answers do not matter. Two members that admit
/// into different clusters contradict each other.
fn admitted(answers: &[Answer]) -> Option<Verdict> {
    let admitting = |answer: &Answer| match answer.peer_state {
        Ok(PeerState { state: Membership::Admitting(cluster), .. }) => Some(cluster),
        _ => None,
    };
    let place = answers.iter().position(|answer| admitting(answer).is_some())?;
    let cluster = admitting(&answers[place])?;
    answers.iter().filter_map(admitting).all(|other| other == cluster).then_some(Verdict::Admitted(place, cluster))
}

/// The blank first node forms only if no node belongs to a cluster.
fn form(answers: &[Answer]) -> Verdict {
    let against = |answer: &Answer| match &answer.peer_state {
        Err(why) => Some(why.clone()),
        Ok(said) => match said.state {
            Membership::Unformed => None,
            Membership::Receiving => Some(WaitReason::Busy("a bundle is on its way to it".to_owned())),
            Membership::Forming(_) | Membership::Formed(_) | Membership::Admitting(_) => Some(WaitReason::InCluster),
        },
    };
    wait_or(Verdict::Form, answers.iter().map(against).collect())
}

/// The first node after its decision waits until etcd can have a quorum.
fn hand_over(own: &Own, cluster: Uuid, answers: &[Answer]) -> Verdict {
    if own.quorum {
        return Verdict::Proceed;
    }
    let against = |answer: &Answer| match &answer.peer_state {
        Err(why) => Some(why.clone()),
        Ok(said) => match said.state.cluster() {
            None => Some(WaitReason::Busy("it has not fetched its bundle yet".to_owned())),
            Some(theirs) if theirs != cluster => Some(WaitReason::OtherCluster),
            Some(_) => None,
        },
    };
    Verdict::Wait(answers.iter().map(against).collect())
}

/// A blank node that is not the first gets its bundle after the first node's decision, unless the nodes' records
/// contradict each other.
fn fetch(answers: &[Answer]) -> Verdict {
    let Some(first) = answers.iter().find(|answer| answer.first) else {
        return Verdict::Wait(answers.iter().map(|_| None).collect());
    };
    let decided = match &first.peer_state {
        Ok(PeerState { state: Membership::Forming(cluster), yours }) if *yours != Some(Progress::Joined) => {
            Some(*cluster)
        }
        _ => None,
    };
    let against = |answer: &Answer| match (&answer.peer_state, answer.first) {
        // Another member may have joined and closed long before this node returns.
        (Err(WaitReason::Closed), false) => None,
        (Err(why), _) => Some(why.clone()),
        (Ok(said), true) => match said.state {
            Membership::Unformed | Membership::Receiving => {
                Some(WaitReason::Busy("it has not met all the others yet".to_owned()))
            }
            Membership::Forming(_) if said.yours == Some(Progress::Joined) => Some(WaitReason::Lost),
            Membership::Formed(_) | Membership::Admitting(_) => Some(WaitReason::Lost),
            Membership::Forming(_) => None,
        },
        (Ok(said), false) => said
            .state
            .cluster()
            .filter(|theirs| decided.is_some_and(|cluster| cluster != *theirs))
            .map(|_| WaitReason::OtherCluster),
    };
    let against: Vec<_> = answers.iter().map(against).collect();
    match decided {
        // This node waits because of a node that contradicts the first one, but not because of a node that does not answer.
        Some(cluster) if !against.contains(&Some(WaitReason::OtherCluster)) => Verdict::Fetch(cluster),
        _ => Verdict::Wait(against),
    }
}

/// A node that holds its bundle: the first node must still know the cluster.
fn stay(cluster: Uuid, answers: &[Answer]) -> Verdict {
    let against = |answer: &Answer| match &answer.peer_state {
        _ if !answer.first => None,
        Err(why) => Some(why.clone()),
        Ok(said) => match said.state.cluster() {
            None => Some(WaitReason::Blank),
            Some(theirs) if theirs != cluster => Some(WaitReason::OtherCluster),
            Some(_) => None,
        },
    };
    wait_or(Verdict::Proceed, answers.iter().map(against).collect())
}

fn wait_or(verdict: Verdict, against: Vec<Option<WaitReason>>) -> Verdict {
    if against.iter().all(Option::is_none) { verdict } else { Verdict::Wait(against) }
}
