//! Whether a lost control-plane node is replaced now, and what is waited for if not. Pure.
//!
//! | Condition | Automatic | By annotation |
//! |---|---|---|
//! | one of three nodes is lost, and the others are Ready | yes | yes |
//! | its VM is proved off or gone | for `repair.afterSeconds` | now |
//! | its host does not respond | never | once the operator confirmed that the named host is off |
//! | no Operation is open, and nothing is paused: the reconciler asks that before ([`held_message`]) | yes | yes |
//! | few clusters of the Provider replace a node at once | yes | no |
//! | none was replaced automatically within a day | yes | no |
//!
//! The node that admits the new VM also checks that nothing answers at the address of the lost one.

use fleet::control_plane::{DeployStatus, PowerProof};
use fleet::hypervisor::PowerState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::objects::{HOST_IS_OFF, NodeRepair, REPLACE_NODE, TenantCluster};

/// Of how many clusters of a Provider one may replace a node by itself: 5 %.
const OF_CLUSTERS: usize = 20;
/// How long after an automatic replacement the next one waits, in seconds.
const DAY: i64 = 24 * 60 * 60;
/// How long the state of the lost VM may be unobserved without being lost, in seconds.
const UNSEEN: i64 = 120;

/// A node that is lost, or that the operator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNode {
    pub name: String,
    /// Whether the operator asked for its replacement.
    pub is_asked: bool,
}

/// The next step of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementStep {
    /// No node is lost, or another one is powered on first.
    Nothing,
    /// It begins. With the host that the operator confirmed to be off.
    Begin { host_is_off: Option<String> },
    /// It waits, as the message says.
    Waits(String),
    /// Only the operator can continue it, as the message says.
    Asks(String),
}

/// Everything that decides whether a replacement begins.
#[derive(Clone, Debug)]
pub struct ReplacementInputs<'a> {
    pub cluster: &'a TenantCluster,
    pub lost: &'a LostNode,
    pub seen: &'a DeployStatus,
    pub proof: &'a PowerProof,
    /// The record of the lost node, with this look.
    pub noted: &'a NodeRepair,
    /// The clusters of the Provider, and how many of them replace a node.
    pub clusters: (usize, usize),
    pub now: &'a Time,
}

fn annotation<'a>(cluster: &'a TenantCluster, name: &str) -> Option<&'a str> {
    cluster.annotations().get(name).map(String::as_str)
}

/// The beginning of an annotation's value for a message.
fn shown(value: &str) -> String {
    value.chars().filter(|character| !character.is_control()).take(63).collect()
}

fn is_node(seen: &DeployStatus, name: &str) -> bool {
    seen.nodes.iter().any(|node| node.name == name)
}

/// Says how to correct an annotation that names no control-plane node. Its value may be any text, so it is ignored.
pub fn misnamed_node(cluster: &TenantCluster, seen: &DeployStatus) -> Option<String> {
    let asked = annotation(cluster, REPLACE_NODE).filter(|asked| seen.formed && !is_node(seen, asked))?;
    let nodes: Vec<&str> = seen.nodes.iter().map(|node| node.name.as_str()).collect();
    let (name, nodes) = (cluster.name_any(), nodes.join(", "));
    Some(format!(
        "the annotation {REPLACE_NODE} is ignored: {name} has no control-plane node {}. Run `kaas cluster replace-node {name} NODE` \
         for one of {nodes}, or remove the annotation with `kubectl annotate tenantclusters {name} {REPLACE_NODE}-`",
        shown(asked)
    ))
}

/// The node to replace: the one that the operator names, or the only one that is not Ready and whose VM is not on.
pub fn lost_node(cluster: &TenantCluster, seen: &DeployStatus) -> Option<LostNode> {
    if !seen.formed || !seen.looked {
        return None;
    }
    if let Some(name) = annotation(cluster, REPLACE_NODE).filter(|name| is_node(seen, name)) {
        return Some(LostNode { name: name.to_owned(), is_asked: true });
    }
    let mut lost = seen.nodes.iter().filter(|node| !node.ready && node.power != Some(PowerState::On));
    let first = lost.next()?;
    let is_only = lost.next().is_none() && seen.nodes.len() > 2;
    is_only.then(|| LostNode { name: first.name.clone(), is_asked: false })
}

/// The record of a lost node after a look. A short time without a look does not count as found.
pub fn noted(before: Option<&NodeRepair>, lost: &LostNode, proof: &PowerProof, after: u32, now: &Time) -> NodeRepair {
    let before = before.cloned().unwrap_or_default();
    let is_same = before.node.as_ref() == Some(&lost.name);
    let ago = |time: &Time| now.0.as_second() - time.0.as_second();
    let most = UNSEEN.max(i64::from(after / 3));
    let host = match proof {
        PowerProof::Unknown { host: Some(host), .. } if !host.responds => Some(host.name.clone()),
        _ => None,
    };
    let (since, last) = match proof {
        PowerProof::Unknown { .. } => (None, None),
        PowerProof::Off | PowerProof::Gone => {
            let kept = before.proved_since.clone().zip(before.last_proved.clone());
            let kept = kept.filter(|(_, last)| is_same && (-most..=most).contains(&ago(last)));
            match kept {
                Some((since, last)) => (Some(since), Some(if ago(&last) < UNSEEN / 2 { last } else { now.clone() })),
                None => (Some(now.clone()), Some(now.clone())),
            }
        }
    };
    NodeRepair { node: Some(lost.name.clone()), proved_since: since, last_proved: last, host, ..before }
}

fn evidence(node: &str, proof: &PowerProof) -> String {
    match proof {
        PowerProof::Off => format!("the VM of {node} is off, without its data disk"),
        PowerProof::Gone => format!("the VM of {node} and its data disk are gone"),
        PowerProof::Unknown { why, .. } => format!("{node} is not proved lost: {why}"),
    }
}

/// The message about a lost node that is not replaced now, for the reason `held`. `None` if the node may return by itself.
pub fn held_message(lost: &LostNode, proof: &PowerProof, held: &str) -> Option<String> {
    let may_return =
        matches!(proof, PowerProof::Unknown { host, .. } if host.as_ref().is_none_or(|host| host.responds));
    let words = || format!("{}. It is not replaced now: {held}", evidence(&lost.name, proof));
    (lost.is_asked || !may_return).then(words)
}

impl ReplacementInputs<'_> {
    pub fn next(&self) -> ReplacementStep {
        let Self { cluster, lost, .. } = self;
        let (name, node) = (cluster.name_any(), &lost.name);
        let command = format!("`kaas cluster replace-node {name} {node}`");
        let what = match self.proof {
            PowerProof::Off | PowerProof::Gone => evidence(node, self.proof),
            PowerProof::Unknown { why, host } => match host.as_ref().filter(|host| !host.responds) {
                Some(host) => return self.on_silent_host(why, &host.name, &command),
                None if lost.is_asked => {
                    return ReplacementStep::Asks(format!(
                        "{node} is not replaced, for it is not proved lost: {why}. To withdraw the request, remove the annotation \
                         {REPLACE_NODE}"
                    ));
                }
                // It may be powered on, or its disk may be on its way.
                None => return ReplacementStep::Nothing,
            },
        };
        if let Some(wait) = self.prevented(&what) {
            return wait;
        }
        if lost.is_asked {
            return ReplacementStep::Begin { host_is_off: None };
        }
        let repair = &cluster.spec.control_plane.repair;
        if !repair.automatic {
            return ReplacementStep::Asks(format!(
                "{what}. {command} replaces it: spec.controlPlane.repair.automatic is false"
            ));
        }
        let at = |time: &Time, seconds: i64| time.0.as_second().saturating_add(seconds);
        // One that was begun and has not ended is this one.
        let last = self.noted.last_automatic.as_ref().filter(|last| self.noted.started.as_ref() != Some(*last));
        let last = last.map(|last| at(last, DAY));
        if let Some(again) = last.filter(|again| *again > self.now.0.as_second()) {
            let words =
                format!("{what}. An automatic replacement has begun within a day: {command} replaces this node");
            return ReplacementStep::Asks(format!("{words}; the controller does so at {}", moment(again)));
        }
        let since = self.noted.proved_since.as_ref().unwrap_or(self.now);
        let begins = at(since, repair.after_seconds.into());
        if begins > self.now.0.as_second() {
            return ReplacementStep::Waits(format!(
                "{what}. It is replaced at {}; {command} does it now",
                moment(begins)
            ));
        }
        let (all, busy) = self.clusters;
        let most = (all / OF_CLUSTERS).max(1);
        if busy >= most {
            return ReplacementStep::Waits(format!(
                "{what}. It is replaced once fewer than {most} of the Provider's {all} clusters replace a node; {busy} do now. {command} \
                 does it at once"
            ));
        }
        ReplacementStep::Begin { host_is_off: None }
    }

    /// Whether the VM runs is unknown until the operator says so, for the host that the controller has named before.
    fn on_silent_host(&self, why: &str, host: &str, command: &str) -> ReplacementStep {
        let node = &self.lost.name;
        let said = annotation(self.cluster, HOST_IS_OFF).filter(|_| self.lost.is_asked);
        if said == Some(host) {
            let what = format!("the operator said that the host {host} of {node} is off");
            return self.prevented(&what).unwrap_or(ReplacementStep::Begin { host_is_off: Some(host.to_owned()) });
        }
        let other =
            said.map(|said| format!(" The annotation {HOST_IS_OFF} names {}.", shown(said))).unwrap_or_default();
        ReplacementStep::Asks(format!(
            "whether the VM of {node} runs is unknown: {why}.{other} Bring the host back, or switch it off and run {} --host-is-off \
             {host}`",
            command.trim_end_matches('`')
        ))
    }

    /// The step if something prevents any replacement now.
    fn prevented(&self, what: &str) -> Option<ReplacementStep> {
        let others = self.seen.nodes.iter().filter(|node| node.name != self.lost.name && !node.ready);
        if others.clone().any(|node| node.power == Some(PowerState::Off)) {
            return Some(ReplacementStep::Nothing);
        }
        let others: Vec<&str> = others.map(|node| node.name.as_str()).collect();
        (!others.is_empty()).then(|| {
            let others = others.join(", ");
            ReplacementStep::Waits(format!("{what}. It is replaced once the other nodes are Ready: {others}"))
        })
    }
}

/// A moment in RFC 3339.
fn moment(seconds: i64) -> String {
    k8s_openapi::jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fleet::control_plane::NodeStatus;
    use fleet::hypervisor::Host;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture;

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(fixture::now().0.as_second() + seconds).unwrap())
    }

    /// Three nodes, of which the second one has no VM.
    fn seen() -> DeployStatus {
        let node = |number: u8| NodeStatus {
            name: format!("shop-cp{number}"),
            address: Ipv4Addr::new(192, 168, 10, 19 + number),
            vm: None,
            uuid: None,
            power: (number != 2).then_some(PowerState::On),
            size: None,
            formed: number != 2,
            ready: number != 2,
        };
        DeployStatus {
            cluster: "shop".to_owned(),
            formed: true,
            looked: true,
            nodes: (1..=3).map(node).collect(),
            ..DeployStatus::default()
        }
    }

    fn silent() -> PowerProof {
        let host = Some(Host { name: "esx1".to_owned(), responds: false });
        PowerProof::Unknown { why: "it is on esx1".to_owned(), host }
    }

    /// The step after so many seconds of this proof.
    fn step(
        proof: &PowerProof,
        seconds: i64,
        change: impl FnOnce(&mut TenantCluster, &mut (usize, usize)),
    ) -> ReplacementStep {
        let (mut cluster, mut clusters) = (fixture::cluster(), (10, 0));
        change(&mut cluster, &mut clusters);
        let seen = seen();
        let lost = lost_node(&cluster, &seen).unwrap();
        let before = cluster.status.as_ref().and_then(|status| status.node_repair.clone());
        let first = noted(before.as_ref(), &lost, proof, 900, &at(0));
        let last = NodeRepair { last_proved: first.last_proved.as_ref().map(|_| at(seconds)), ..first };
        let now = at(seconds);
        let noted = noted(Some(&last), &lost, proof, 900, &now);
        let inputs = ReplacementInputs {
            cluster: &cluster,
            lost: &lost,
            seen: &seen,
            proof,
            noted: &noted,
            clusters,
            now: &now,
        };
        inputs.next()
    }

    fn ask(cluster: &mut TenantCluster, name: &str, value: &str) {
        cluster.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
    }

    // Finding 5 of controller.md.
    #[test]
    fn node_proved_lost_for_its_time_is_replaced() {
        let begins = ReplacementStep::Begin { host_is_off: None };
        for proof in [PowerProof::Off, PowerProof::Gone] {
            assert!(matches!(step(&proof, 899, |_, _| ()), ReplacementStep::Waits(_)));
            assert_eq!(step(&proof, 900, |_, _| ()), begins);
            assert_eq!(step(&proof, 0, |cluster, _| ask(cluster, REPLACE_NODE, "shop-cp2")), begins, "on request");
        }
        let unknown = PowerProof::Unknown { why: "it is on".to_owned(), host: None };
        assert_eq!(step(&unknown, 9000, |_, _| ()), ReplacementStep::Nothing);
    }

    #[test]
    fn few_clusters_replace_a_node_at_once() {
        let with = |all, busy| step(&PowerProof::Gone, 900, move |_, clusters| *clusters = (all, busy));
        for (all, busy, begins) in [(1, 0, true), (10, 1, false), (39, 1, false), (40, 1, true), (40, 2, false)] {
            assert_eq!(with(all, busy) == ReplacementStep::Begin { host_is_off: None }, begins, "{all} {busy}");
        }
        let asked = step(&PowerProof::Gone, 0, |cluster, clusters| {
            ask(cluster, REPLACE_NODE, "shop-cp2");
            *clusters = (10, 5);
        });
        assert_eq!(asked, ReplacementStep::Begin { host_is_off: None });
    }

    #[test]
    fn one_node_a_day_is_replaced_automatically() {
        let after = |ago: i64| {
            step(&PowerProof::Gone, 900, move |cluster, _| {
                let repair = NodeRepair { last_automatic: Some(at(900 - ago)), ..NodeRepair::default() };
                cluster.status.get_or_insert_default().node_repair = Some(repair);
            })
        };
        assert!(matches!(after(DAY - 1), ReplacementStep::Asks(words) if words.contains("kaas cluster replace-node")));
        assert_eq!(after(DAY), ReplacementStep::Begin { host_is_off: None });
    }

    // A malformed annotation went into the status, and the API server refused each write of it.
    #[test]
    fn malformed_annotations_are_ignored_and_named() {
        let (mut cluster, seen) = (fixture::cluster(), seen());
        assert_eq!(misnamed_node(&cluster, &seen), None);
        let long = format!("no\nname{}", "!".repeat(5000));
        for name in ["shop-cp4", "Shop CP2", "", long.as_str()] {
            ask(&mut cluster, REPLACE_NODE, name);
            assert_eq!(lost_node(&cluster, &seen), Some(LostNode { name: "shop-cp2".to_owned(), is_asked: false }));
            let words = misnamed_node(&cluster, &seen).unwrap();
            assert!(words.len() < 512 && words.contains("`kubectl annotate tenantclusters shop "), "{words}");
            assert!(!words.contains('\n') && words.contains("shop-cp1, shop-cp2, shop-cp3"), "{words}");
        }
        ask(&mut cluster, REPLACE_NODE, "shop-cp2");
        assert_eq!(misnamed_node(&cluster, &seen), None);
        let host = step(&silent(), 0, |cluster, _| {
            ask(cluster, REPLACE_NODE, "shop-cp2");
            ask(cluster, HOST_IS_OFF, &long);
        });
        assert!(matches!(&host, ReplacementStep::Asks(words) if words.len() < 512), "{host:?}");
    }

    // While the cluster was paused, or an Operation was open, no condition named the lost node.
    #[test]
    fn held_replacement_is_explained() {
        let held = |proof: &PowerProof, is_asked| {
            held_message(&LostNode { name: "shop-cp2".to_owned(), is_asked }, proof, "set spec.paused to false")
        };
        let unknown = PowerProof::Unknown { why: "it is on".to_owned(), host: None };
        for (proof, is_asked, words) in [
            (PowerProof::Gone, false, "the VM of shop-cp2 and its data disk are gone."),
            (PowerProof::Off, true, "the VM of shop-cp2 is off, without its data disk."),
            (silent(), false, "shop-cp2 is not proved lost: it is on esx1."),
            (unknown.clone(), true, "shop-cp2 is not proved lost: it is on."),
        ] {
            let all = format!("{words} It is not replaced now: set spec.paused to false");
            assert_eq!(held(&proof, is_asked), Some(all));
        }
        assert_eq!(held(&unknown, false), None);
    }

    #[test]
    fn silent_host_waits_for_the_operator() {
        let named = |step: ReplacementStep| match step {
            ReplacementStep::Asks(words) => words,
            other => panic!("{other:?}"),
        };
        let words = named(step(&silent(), 9000, |_, _| ()));
        assert!(words.contains("`kaas cluster replace-node shop shop-cp2 --host-is-off esx1`"), "{words}");
        let said = |host: &'static str| {
            step(&silent(), 0, move |cluster, _| {
                ask(cluster, REPLACE_NODE, "shop-cp2");
                ask(cluster, HOST_IS_OFF, host);
            })
        };
        assert!(named(said("esx2")).contains("names esx2"));
        assert_eq!(said("esx1"), ReplacementStep::Begin { host_is_off: Some("esx1".to_owned()) });
        // Without the request the confirmation counts for nothing.
        named(step(&silent(), 0, |cluster, _| ask(cluster, HOST_IS_OFF, "esx1")));
    }

    #[test]
    fn proof_starts_again_after_a_gap() {
        let lost = LostNode { name: "shop-cp2".to_owned(), is_asked: false };
        let first = noted(None, &lost, &PowerProof::Gone, 900, &at(0));
        let soon = noted(Some(&first), &lost, &PowerProof::Gone, 900, &at(299));
        assert_eq!(soon.proved_since, Some(at(0)));
        let late = noted(Some(&first), &lost, &PowerProof::Gone, 900, &at(301));
        assert_eq!(late.proved_since, Some(at(301)));
        let back = noted(Some(&first), &lost, &silent(), 900, &at(10));
        assert_eq!((back.proved_since, back.host.as_deref()), (None, Some("esx1")));
        let other = LostNode { name: "shop-cp3".to_owned(), is_asked: false };
        assert_eq!(noted(Some(&first), &other, &PowerProof::Gone, 900, &at(10)).proved_since, Some(at(10)));
    }
}
