//! Takes the control nodes to the next Kubernetes minor that their image carries, one after the other, once an
//! image swap is committed. How far it is stands on the nodes themselves: doing it again goes on.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::kubernetes_upgrade;
use contract::minor::Minor;
use contract::node::Node;
use serde::Serialize;
use tokio::time::Instant;

use super::deployment::Standing;
use super::fenced_nodes::FencedNodes;
use super::inventory::{Inventory, SeenNode};
use super::judge::{self, Judged};
use super::notice::Notice;
use super::plan::Evidence;
use super::reason::{self, Reason};
use super::refusal::{self as codes, Refusals};
use super::run::unless_ended;
use super::{Asked, Deployment, Nodes};
use crate::authority::{Hold, TakeOver};
use crate::hypervisor::Placement;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// The minor, such as `1.36`; none for the next one.
    pub to: Option<String>,
    /// How long pods may take to move away from a node, in seconds.
    pub drain_seconds: u64,
    /// How long one node may take in all.
    pub limit: Duration,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KubernetesPlan {
    /// The minor that the cluster is taken to.
    pub to: String,
    /// What it rests on.
    pub grounds: Vec<Evidence>,
    /// The nodes that are not there yet, in order.
    pub nodes: Vec<KubernetesNode>,
}

/// A node that is to be upgraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KubernetesNode {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The version that it runs.
    pub runs: String,
    /// Whether its upgrade was begun before.
    pub begun: bool,
}

/// Decides what is to be done. Pure.
///
/// # Errors
/// All that is in the way.
pub fn plan_kubernetes(inventory: &Inventory, wanted: Option<&str>) -> Result<KubernetesPlan, Refusals> {
    let mut judged = Judged::default();
    judge::cluster(&mut judged, inventory);
    let mut all = Vec::new();
    for node in &inventory.nodes {
        let Some(facts) = judge::answering(&mut judged, node) else { continue };
        if !is_begun(facts) {
            judge::health(&mut judged, inventory.nodes.len(), node, facts);
        }
        all.push((node, facts));
    }
    let minors: BTreeSet<Minor> = all.iter().filter_map(|(_, facts)| Minor::of(&facts.kubernetes.version)).collect();
    let Some((&oldest, &newest)) = minors.first().zip(minors.last()) else { return Err(Refusals(judged.refusals)) };
    // Nodes of two minors: an upgrade that was begun.
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
    let mut nodes: Vec<(bool, KubernetesNode)> = all
        .iter()
        .filter(|(_, facts)| is_begun(facts) || Minor::of(&facts.kubernetes.version) != Some(to))
        .map(|(node, facts)| (is_last(facts), planned(node, facts)))
        .collect();
    if nodes.is_empty() && judged.refusals.is_empty() {
        judged.refuse(codes::NOTHING, "the cluster", format!("all control nodes run Kubernetes {to}"));
    }
    if !judged.refusals.is_empty() {
        return Err(Refusals(judged.refusals));
    }
    // What was begun is ended first; who leads etcd or holds the address comes last.
    nodes.sort_by_key(|(last, node)| (!node.begun, *last, node.name.clone()));
    let nodes = nodes.into_iter().map(|(_, node)| node).collect();
    Ok(KubernetesPlan { to: to.to_string(), grounds: judged.grounds, nodes })
}

fn carried(judged: &mut Judged, all: &[(&SeenNode, &Node)], to: Minor) {
    for (node, facts) in all {
        let carried = facts.kubernetes.carried.iter().find(|version| Minor::of(version) == Some(to));
        match carried {
            Some(version) => {
                let runs = &facts.kubernetes.version;
                judged.holds(&node.name, format!("runs Kubernetes {runs}, its image carries {version}"));
            }
            None => {
                let carried = facts.kubernetes.carried.join(" and ");
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

fn is_last(facts: &Node) -> bool {
    let leads = facts.etcd.as_ref().is_some_and(|etcd| etcd.leader);
    leads || facts.virtual_address.as_ref().is_some_and(|address| address.held)
}

impl Deployment<'_> {
    /// Plans an upgrade of Kubernetes, and lets the first node judge it as well; changes nothing.
    ///
    /// # Errors
    /// All that is in the way.
    pub async fn plan_kubernetes(&self, options: &KubernetesOptions) -> anyhow::Result<KubernetesPlan> {
        self.planned_kubernetes(options, Standing::AsItIs).await
    }

    async fn planned_kubernetes(
        &self,
        options: &KubernetesOptions,
        standing: Standing<'_>,
    ) -> anyhow::Result<KubernetesPlan> {
        let inventory = self.inventory(&Placement::default(), standing).await?;
        let mut plan = plan_kubernetes(&inventory, options.to.as_deref())?;
        if let Some(first) = plan.nodes.iter().find(|node| !node.begun) {
            let request = request(&plan.to, options, true);
            let asked = match standing {
                Standing::Own(hold) => {
                    FencedNodes::new(self.nodes, hold).upgrade_kubernetes(first.address, &request).await?
                }
                Standing::AsItIs | Standing::TakenOver => {
                    self.nodes.upgrade_kubernetes(first.address, &request).await?
                }
            };
            if let Asked::Refused(refused) = asked {
                bail!("{} refuses; nothing was changed\n  {refused}", first.name);
            }
            let evidence = format!("nothing is in the way of Kubernetes {}, kubeadm says so too", plan.to);
            plan.grounds.push(Evidence { subject: first.name.clone(), evidence });
        }
        Ok(plan)
    }

    /// Upgrades Kubernetes on all control nodes.
    ///
    /// # Errors
    /// As [`Deployment::plan_kubernetes`]; or a node gives up or does not get there in time: doing it again goes on.
    pub async fn upgrade_kubernetes(
        &self,
        options: &KubernetesOptions,
        over: TakeOver,
    ) -> anyhow::Result<KubernetesPlan> {
        self.planned_kubernetes(options, Standing::before(over)).await?;
        let hold = self.take("upgrade kubernetes", over).await?;
        let upgraded = self.upgrade_kubernetes_under(&hold, options).await;
        hold.release().await;
        upgraded
    }

    /// The same for a deployment that is held: until now others could change what a plan rested on.
    pub(super) async fn upgrade_kubernetes_under(
        &self,
        hold: &Hold<'_>,
        options: &KubernetesOptions,
    ) -> anyhow::Result<KubernetesPlan> {
        let plan = self.planned_kubernetes(options, Standing::Own(hold)).await?;
        self.upgrade_each(&plan, options, hold).await?;
        Ok(plan)
    }

    async fn upgrade_each(
        &self,
        plan: &KubernetesPlan,
        options: &KubernetesOptions,
        hold: &Hold<'_>,
    ) -> anyhow::Result<()> {
        self.snapshot_before(plan, hold).await?;
        for (index, node) in plan.nodes.iter().enumerate() {
            self.may_go_on(hold).await?;
            self.tell(&Notice::Kubernetes { node, to: &plan.to, index, total: plan.nodes.len() });
            self.upgrade_node(&plan.to, node, options, hold).await.with_context(|| {
                format!("{} does not run Kubernetes {} yet; doing it again goes on", node.name, plan.to)
            })?;
        }
        Ok(())
    }

    /// Whether this command is still the one, and wanted.
    async fn may_go_on(&self, hold: &Hold<'_>) -> anyhow::Result<()> {
        if *self.cancelled.borrow() {
            return Err(Cancelled.into());
        }
        Ok(hold.still().await?)
    }

    /// What the whole cluster can be turned back to: one for each run, for what the cluster was weeks ago helps nobody.
    async fn snapshot_before(&self, plan: &KubernetesPlan, hold: &Hold<'_>) -> anyhow::Result<()> {
        let Some(node) = plan.nodes.first() else { return Ok(()) };
        let directory = self.snapshots.spool().await.context("making room for the snapshot")?;
        let name = format!("before-kubernetes-{}-{}.db", plan.to, hold.number());
        let pulled = directory.path().join(&name);
        let pulling = self.nodes.snapshot(node.address, &pulled);
        let bytes = unless_ended(pulling, self.pace, || self.may_go_on(hold)).await?;
        let bytes = bytes.context("taking a snapshot of etcd")?;
        let place = self.snapshots.keep(&name, &pulled).await?;
        self.tell(&Notice::Kept { place: &place, bytes });
        Ok(())
    }

    async fn upgrade_node(
        &self,
        to: &str,
        node: &KubernetesNode,
        options: &KubernetesOptions,
        hold: &Hold<'_>,
    ) -> anyhow::Result<()> {
        let nodes = FencedNodes::new(self.nodes, hold);
        let asked = nodes.upgrade_kubernetes(node.address, &request(to, options, false)).await?;
        if let Asked::Refused(refused) = asked {
            bail!("it refuses: {refused}");
        }
        let started = Instant::now();
        let what = format!("{} to run Kubernetes {to}", node.name);
        let mut said = None;
        loop {
            self.may_go_on(hold).await?;
            let waiting = match self.nodes.facts(node.address).await {
                Ok(facts) => match missing(&facts, to)? {
                    None => {
                        let seconds = started.elapsed().as_secs();
                        self.tell(&Notice::KubernetesRuns { version: &facts.kubernetes.version, seconds });
                        return Ok(());
                    }
                    Some(missing) => Reason::new(reason::WAITING, missing),
                },
                // Its agent starts again on the way.
                Err(error) => Reason::new(codes::NODE_SILENT, format!("{error:#}")),
            };
            if started.elapsed() >= options.limit {
                bail!("after {} s: {}", options.limit.as_secs(), waiting.words);
            }
            if said.as_ref() != Some(&waiting) {
                self.tell(&Notice::Waiting { what: &what, why: &waiting });
                said = Some(waiting);
            }
            tokio::time::sleep(self.pace).await;
        }
    }
}

/// The operator has asked the command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked to end; doing it again goes on")]
pub struct Cancelled;

fn request(to: &str, options: &KubernetesOptions, check: bool) -> kubernetes_upgrade::Request {
    kubernetes_upgrade::Request { to: to.to_owned(), drain_seconds: options.drain_seconds, check }
}

/// What a node still lacks; none when it has arrived.
fn missing(facts: &Node, to: &str) -> anyhow::Result<Option<String>> {
    let runs = &facts.kubernetes.version;
    let here = Minor::of(runs).is_some_and(|minor| minor.to_string() == to);
    match &facts.kubernetes.upgrade {
        Some(upgrade) => match &upgrade.error {
            Some(error) => bail!("it was given up: {error}"),
            None if here => Ok(Some(format!("takes up {runs}"))),
            None => Ok(Some("moves its pods and the virtual IP away".to_owned())),
        },
        None if !here => bail!("it runs {runs} and knows of no upgrade"),
        None if facts.good.is_none() || !facts.ready => Ok(Some(format!("runs {runs}, waiting to be found good"))),
        None => Ok(None),
    }
}

#[cfg(test)]
#[path = "tests/kubernetes.rs"]
mod tests;
