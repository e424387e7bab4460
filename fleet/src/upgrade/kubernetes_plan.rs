//! Decides which control-plane nodes are taken to which Kubernetes minor version, and in which order. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use contract::minor::Minor;
use contract::node::Node;
use schemars::JsonSchema;
use serde::Serialize;

use super::cluster_seen::{ClusterSeen, SeenNode};
use super::judge::{self, Judged};
use super::plan::Evidence;
use super::refusal::{self as codes, Refusals};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KubernetesPlan {
    /// The minor version that the cluster is taken to.
    pub to: String,
    pub grounds: Vec<Evidence>,
    /// The nodes that do not run it yet, in order.
    pub nodes: Vec<KubernetesNode>,
    /// Whether a node has begun, or runs it: the store is no longer what it was before.
    #[serde(skip)]
    pub begun: bool,
}

/// A node that is to be upgraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KubernetesNode {
    pub name: String,
    /// Where its endpoint listens.
    pub address: Ipv4Addr,
    /// The version that it runs.
    pub runs: String,
    /// Whether its upgrade was begun before.
    pub begun: bool,
}

/// Decides what is to be done. Pure.
pub fn plan_kubernetes(seen: &ClusterSeen, wanted: Option<&str>) -> Result<KubernetesPlan, Refusals> {
    let mut judged = Judged::default();
    judge::cluster(&mut judged, seen);
    let mut all = Vec::new();
    for node in &seen.nodes {
        let Some(facts) = judge::answering(&mut judged, node) else { continue };
        if !is_begun(facts) {
            judge::health(&mut judged, seen.nodes.len(), node, facts);
        }
        all.push((node, facts));
    }
    let minors: BTreeSet<Minor> = all.iter().filter_map(|(_, facts)| Minor::of(&facts.kubernetes.version)).collect();
    let Some((&oldest, &newest)) = minors.first().zip(minors.last()) else { return Err(Refusals(judged.refusals)) };
    // Nodes of two minor versions: an upgrade that was begun.
    let next = if oldest == newest { oldest.next() } else { newest };
    let to = match wanted.map(|wanted| (wanted, wanted.parse())) {
        None => next,
        Some((_, Ok(minor))) => minor,
        Some((wanted, Err(_))) => {
            judged.refuse(codes::KUBERNETES_SKEW, wanted, "it is no Kubernetes minor such as 1.36");
            next
        }
    };
    if to != next && to != newest {
        let reason = format!("the cluster runs Kubernetes {oldest}; the way leads to {next} only");
        judged.refuse(codes::KUBERNETES_SKEW, &to.to_string(), reason);
    } else {
        carried(&mut judged, &all, to);
    }
    let drained = |facts: &Node| is_begun(facts) || Minor::of(&facts.kubernetes.version) != Some(to);
    let mut nodes: Vec<(bool, KubernetesNode)> = Vec::new();
    for (node, facts) in all.iter().filter(|(_, facts)| drained(facts)) {
        judge::losses(&mut judged, node, facts);
        nodes.push((is_last(facts), planned(node, facts)));
    }
    if nodes.is_empty() && judged.refusals.is_empty() {
        judged.refuse(codes::NOTHING, "the cluster", format!("all control-plane nodes run Kubernetes {to}"));
    }
    if !judged.refusals.is_empty() {
        return Err(Refusals(judged.refusals));
    }
    // Begun nodes come first; the leader of etcd and the holder of the address come last.
    nodes.sort_by_key(|(last, node)| (!node.begun, *last, node.name.clone()));
    let nodes = nodes.into_iter().map(|(_, node)| node).collect();
    // One that has given up may have run the new API server for a while.
    let begun = all
        .iter()
        .any(|(_, facts)| facts.kubernetes.upgrade.is_some() || Minor::of(&facts.kubernetes.version) == Some(to));
    Ok(KubernetesPlan { to: to.to_string(), grounds: judged.grounds, nodes, begun })
}

fn carried(judged: &mut Judged, all: &[(&SeenNode, &Node)], to: Minor) {
    for (node, facts) in all {
        let carried = facts.kubernetes.available.iter().find(|version| Minor::of(version) == Some(to));
        match carried {
            Some(version) => {
                let runs = &facts.kubernetes.version;
                judged.holds(&node.name, format!("runs Kubernetes {runs}, its image carries {version}"));
            }
            None => {
                let carried = facts.kubernetes.available.join(" and ");
                let reason =
                    format!("its image carries Kubernetes {carried}, not {to}; swap it to one that does first");
                judged.refuse(codes::KUBERNETES, &node.name, reason);
            }
        }
    }
}

fn planned(node: &SeenNode, facts: &Node) -> KubernetesNode {
    KubernetesNode {
        name: node.name.clone(),
        address: node.address,
        runs: facts.kubernetes.version.clone(),
        begun: is_begun(facts),
    }
}

fn is_begun(facts: &Node) -> bool {
    facts.kubernetes.upgrade.as_ref().is_some_and(|upgrade| upgrade.error.is_none())
}

/// Whether it leads etcd or holds the virtual IP: it comes last.
pub(super) fn is_last(facts: &Node) -> bool {
    let leads = facts.etcd.as_ref().is_some_and(|etcd| etcd.leader);
    leads || facts.virtual_address.as_ref().is_some_and(|address| address.held)
}
