//! Whether an upgrade is permitted: every condition with its evidence, or with the reason why it does not hold. Pure.

mod image;
mod vm;

use contract::node::{Etcd, Node};

use super::cluster_seen::{ClusterSeen, SeenNode};
use super::entry::{Direction, Outcome};
use super::inventory::Inventory;
use super::plan::{Evidence, Mode, Options};
use super::refusal::{self as codes, Refusal};
use super::target::Target;
use crate::nodes::clean;

#[derive(Default)]
pub(super) struct Judged {
    pub(super) grounds: Vec<Evidence>,
    pub(super) refusals: Vec<Refusal>,
}

impl Judged {
    pub(super) fn holds(&mut self, subject: &str, evidence: impl Into<String>) {
        self.grounds.push(Evidence { subject: cut(subject), evidence: cut(&evidence.into()) });
    }

    pub(super) fn refuse(&mut self, code: &'static str, subject: &str, reason: impl Into<String>) {
        self.refusals.push(Refusal { code, subject: cut(subject), reason: cut(&reason.into()) });
    }
}

/// The most bytes of UTF-8 in a condition. A plan keeps all conditions, nodes write parts of them, and an object that
/// holds a plan has a size limit.
const MOST: usize = 2048;

/// A text as [`clean`] leaves it, and cut.
fn cut(text: &str) -> String {
    let mut text = clean(text);
    text.truncate(text.floor_char_boundary(MOST));
    text
}

const CLUSTER: &str = "the cluster";

pub(super) fn judge(inventory: &Inventory, target: &Target, options: &Options) -> Judged {
    let mut judged = Judged::default();
    image::trust(&mut judged, inventory, target, options);
    cluster(&mut judged, &inventory.cluster);
    permitted(&mut judged, inventory);
    for node in &inventory.cluster.nodes {
        let Some(facts) = answering(&mut judged, node) else { continue };
        health(&mut judged, inventory.cluster.nodes.len(), node, facts);
        // All at once nothing is drained.
        if options.mode == Mode::Rolling {
            losses(&mut judged, node, facts);
        }
        vm::judge(&mut judged, inventory, node, facts, (target, options));
        image::judge(&mut judged, facts, target, options);
    }
    judged
}

/// The node's answer, if it has one.
pub(super) fn answering<'n>(judged: &mut Judged, node: &'n SeenNode) -> Option<&'n Node> {
    match &node.facts {
        Ok(facts) => Some(facts),
        Err(why) => {
            let reason = format!("its endpoint at {} does not answer ({why}); bring the node back first", node.address);
            judged.refuse(codes::NODE_SILENT, &node.name, reason);
            None
        }
    }
}

/// Whether the hypervisor lets an upgrade be.
fn permitted(judged: &mut Judged, inventory: &Inventory) {
    if let Some(denied) = &inventory.denied {
        judged.refuse(codes::DENIED, "the hypervisor", denied.clone());
    }
    if let Some(no_place) = &inventory.no_place {
        judged.refuse(codes::PLACEMENT, "the hypervisor", no_place.clone());
    }
}

/// Whether no command holds the deployment, its last upgrade has ended, and was of this cluster.
pub(super) fn cluster(judged: &mut Judged, seen: &ClusterSeen) {
    match &seen.held_by {
        Some(holder) => judged.refuse(codes::LOCKED, CLUSTER, format!("{holder} holds the lease of its deployment")),
        None => judged.holds(CLUSTER, "no command holds the lease of its deployment"),
    }
    let Some(earlier) = &seen.earlier else { return };
    let id = earlier.id;
    match (earlier.direction, earlier.outcome) {
        (_, Some(Outcome::RolledBack | Outcome::Committed | Outcome::Abandoned)) => {}
        (_, Some(Outcome::Upgraded)) => {
            judged.refuse(codes::UNCOMMITTED, CLUSTER, format!("the upgrade {id} is not committed"));
        }
        (Direction::Commit, None) => {
            judged.refuse(codes::UNFINISHED, CLUSTER, format!("committing the upgrade {id} has not ended"));
        }
        (_, None) => judged.refuse(codes::UNFINISHED, CLUSTER, format!("the upgrade {id} has not ended")),
    }
    if earlier.cluster != seen.id {
        let (before, now) = (earlier.cluster, seen.id);
        if seen.other_cluster == Some(now) {
            judged.holds(CLUSTER, format!("the operator states that it is {now}; at the last upgrade it was {before}"));
            return;
        }
        let reason = format!("the deployment's last upgrade was of cluster {before}, the kubeconfig leads to {now}");
        judged.refuse(codes::OTHER_CLUSTER, CLUSTER, reason);
    }
}

/// The data that moving the pods away deletes for good. It blocks nothing, but the operator has to know before.
pub(super) fn losses(judged: &mut Judged, node: &SeenNode, facts: &Node) {
    if let Some(words) = drain_deletes(Some(facts)) {
        judged.holds(&node.name, words);
    }
}

/// The same in words, of a node that may not have answered. `None` if nothing is lost.
pub(super) fn drain_deletes(facts: Option<&Node>) -> Option<String> {
    match facts.and_then(|facts| facts.pods.as_ref()?.losses.as_ref()) {
        Some(losses) if losses.is_empty() => None,
        Some(losses) => Some(cut(&format!("when it is drained, {losses}"))),
        None => Some("which pods a drain deletes for good cannot be known now".to_owned()),
    }
}

/// Judges whether a node does its part, and sees all of `expected` members of etcd healthy.
pub(super) fn health(judged: &mut Judged, expected: usize, node: &SeenNode, facts: &Node) {
    match (&facts.healthy, facts.ready) {
        (Some(_), true) => judged.holds(&node.name, format!("ready and found healthy, on {}", facts.image.build())),
        (None, true) => judged.refuse(codes::NODE_NOT_READY, &node.name, "its boot was not found healthy yet"),
        (_, false) => judged.refuse(codes::NODE_NOT_READY, &node.name, "it does not do its part of the cluster"),
    }
    if let Some(swap) = &facts.swap {
        judged.refuse(codes::SWAP_OPEN, &node.name, format!("its swap {} is under way or not committed", swap.id));
    }
    let Some(etcd) = &facts.etcd else {
        judged.refuse(codes::MEMBER_UNHEALTHY, &node.name, "its etcd does not answer; repair it first");
        return;
    };
    let wrong = members_wrong(etcd, expected);
    for reason in &wrong {
        let code = if etcd.members.len() == expected { codes::MEMBER_UNHEALTHY } else { codes::MEMBERS_DIFFER };
        judged.refuse(code, &node.name, format!("{reason}, seen from here"));
    }
    if wrong.is_empty() {
        let leads = if etcd.leader { ", which leads" } else { "" };
        judged
            .holds(&node.name, format!("etcd {}, member {}{leads}; all {expected} healthy", etcd.version, etcd.member));
    }
}

/// Defects of etcd's members as one of them sees them. Empty if there are as many as control-plane nodes, all with a
/// vote and healthy. A list that could not be read counts as a defect.
pub(super) fn members_wrong(etcd: &Etcd, expected: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    if etcd.members.len() != expected {
        wrong.push(format!("etcd has {} members, Kubernetes {expected} control-plane nodes", etcd.members.len()));
    }
    for member in &etcd.members {
        let name = if member.name.is_empty() { &member.id } else { &member.name };
        if !member.healthy {
            wrong.push(format!("etcd's member {name} is not healthy"));
        } else if member.learner {
            wrong.push(format!("etcd's member {name} has no vote yet"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use contract::swap::Losses;

    use super::*;

    #[test]
    fn conditions_fit_into_a_plan() {
        // The most that one answer of a dishonest node can hold: names are cut to 500 characters there, of up to four
        // bytes each.
        let names = vec!["\u{1f980}".repeat(500); 500];
        let losses = Losses { bare_pods: names.clone(), empty_dirs: names }.to_string();
        let mut judged = Judged::default();
        judged.holds("cp1", losses.clone());
        judged.refuse(codes::NODE_NOT_READY, "cp1", "\u{1f980}".repeat(5000));
        let (evidence, reason) = (&judged.grounds[0].evidence, &judged.refusals[0].reason);
        assert!(evidence.len() <= MOST && losses.starts_with(evidence.as_str()), "{} bytes", evidence.len());
        assert_eq!(reason.len(), MOST);
    }
}
