//! Whether a lost control-plane node is replaced now, and what is waited for if not. Pure.
//!
//! | Condition | Automatic | By annotation |
//! |---|---|---|
//! | one of three nodes is lost, and the others are Ready | yes | yes |
//! | its VM is proved off or gone | for `repair.afterSeconds` | now |
//! | its host does not respond | never | once the operator confirmed that the named host is off |
//! | no Operation is open, and nothing is paused | yes | yes |
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
    /// No node is lost.
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
    /// What was noted of the lost node, with this look.
    pub noted: &'a NodeRepair,
    /// Why nothing begins now, such as an open Operation. `None` if nothing prevents it.
    pub rests: Option<String>,
    /// The clusters of the Provider, and how many of them replace a node.
    pub clusters: (usize, usize),
    pub now: &'a Time,
}

fn annotation<'a>(cluster: &'a TenantCluster, name: &str) -> Option<&'a str> {
    cluster.annotations().get(name).map(String::as_str)
}

/// The node that is to be replaced: the one that the operator names, or the only one that is not Ready and whose VM is not on.
pub fn lost_node(cluster: &TenantCluster, seen: &DeployStatus) -> Option<LostNode> {
    if !seen.formed || !seen.looked {
        return None;
    }
    if let Some(name) = annotation(cluster, REPLACE_NODE) {
        return Some(LostNode { name: name.to_owned(), is_asked: true });
    }
    let mut lost = seen.nodes.iter().filter(|node| !node.ready && node.power != Some(PowerState::On));
    let first = lost.next()?;
    let is_only = lost.next().is_none() && seen.nodes.len() > 2;
    is_only.then(|| LostNode { name: first.name.clone(), is_asked: false })
}

/// What is noted of a lost node after a look. A short time without a look does not count as found.
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

impl ReplacementInputs<'_> {
    pub fn next(&self) -> ReplacementStep {
        let Self { cluster, lost, seen, .. } = self;
        let (name, node) = (cluster.name_any(), &lost.name);
        let command = format!("`kaas cluster replace-node {name} {node}`");
        if !seen.nodes.iter().any(|known| known.name == *node) {
            let words = format!("{name} has no control-plane node {node}, which the annotation {REPLACE_NODE} names");
            return ReplacementStep::Asks(words);
        }
        let what = match self.proof {
            PowerProof::Off => format!("the VM of {node} is off, without its data disk"),
            PowerProof::Gone => format!("the VM of {node} and its data disk are gone"),
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
        let last = self.noted.last_automatic.as_ref().map(|last| at(last, DAY));
        if let Some(again) = last.filter(|again| *again > self.now.0.as_second()) {
            let words = format!("{what}. A node was replaced automatically within a day: {command} replaces this one");
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
        let other = said.map(|said| format!(" The annotation {HOST_IS_OFF} names {said}.")).unwrap_or_default();
        ReplacementStep::Asks(format!(
            "whether the VM of {node} runs is unknown: {why}.{other} Bring the host back, or switch it off and run {} --host-is-off \
             {host}`",
            command.trim_end_matches('`')
        ))
    }

    /// What prevents any replacement now.
    fn prevented(&self, what: &str) -> Option<ReplacementStep> {
        if let Some(rests) = &self.rests {
            return Some(ReplacementStep::Waits(format!("{what}. It is replaced once nothing else is open: {rests}")));
        }
        let others = self.seen.nodes.iter().filter(|node| node.name != self.lost.name && !node.ready);
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
