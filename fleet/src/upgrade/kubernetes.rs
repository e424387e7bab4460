//! Takes the control-plane nodes to the next Kubernetes minor version that their image carries, one after the other,
//! once an image swap is committed. The nodes themselves keep the progress: run again, it goes on.

use std::time::Duration;

use anyhow::{Context, bail};
use contract::kubernetes_upgrade;
use contract::minor::Minor;
use contract::node::Node;
use tokio::time::Instant;

use super::guarded_nodes::GuardedNodes;
use super::hold_view::HoldView;
use super::judge::drain_deletes;
use super::kubernetes_plan::{KubernetesNode, KubernetesPlan, plan_kubernetes};
use super::notice::Notice;
use super::plan::Evidence;
use super::reason;
use super::refusal as codes;
use super::snapshot_name::before_kubernetes;
use super::{Asked, Deployment, NodeRequest, Nodes};
use crate::cancel::{unless_cancelled, unless_ended};
use crate::engine::Reason;
use crate::lease::{Lease, TakeOver};

/// A node refuses to go to another minor version, gave that up, or did not get there in time. Asked again, it is
/// drained again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GaveUp(String);

#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// The minor version, such as `1.36`; none for the next one.
    pub to: Option<String>,
    /// How long pods may take to move away from a node, in seconds.
    pub drain_seconds: u64,
    /// How long one node may take in all.
    pub limit: Duration,
}

impl Deployment<'_> {
    /// Plans an upgrade of Kubernetes, and lets the first node judge it as well; changes nothing.
    pub async fn plan_kubernetes(&self, options: &KubernetesOptions) -> anyhow::Result<KubernetesPlan> {
        self.planned_kubernetes(options, HoldView::AsItIs).await
    }

    /// The same for a caller that would take the deployment over as `over` says.
    pub async fn plan_kubernetes_over(
        &self,
        options: &KubernetesOptions,
        over: TakeOver,
    ) -> anyhow::Result<KubernetesPlan> {
        self.planned_kubernetes(options, HoldView::before(over)).await
    }

    async fn planned_kubernetes(
        &self,
        options: &KubernetesOptions,
        view: HoldView<'_>,
    ) -> anyhow::Result<KubernetesPlan> {
        self.may_be_upgraded().await?;
        let seen = self.cluster_seen(view).await?;
        let mut plan = plan_kubernetes(&seen, options.to.as_deref())?;
        if let Some(first) = plan.nodes.iter().find(|node| !node.begun) {
            let request = request(&plan.to, options, true);
            let request = NodeRequest::UpgradeKubernetes(&request);
            let asked = match view {
                HoldView::Own(hold) => GuardedNodes::new(self.nodes, hold).request(first.address, request).await?,
                HoldView::AsItIs | HoldView::TakenOver => {
                    self.nodes.ready().await?;
                    self.nodes.request(first.address, request).await?
                }
            };
            if let Asked::Refused(refused) = asked {
                bail!("{} refuses; nothing was changed\n  {refused}", first.name);
            }
            let evidence = format!("nothing blocks Kubernetes {}, kubeadm confirms it", plan.to);
            plan.grounds.push(Evidence { subject: first.name.clone(), evidence });
        }
        Ok(plan)
    }

    /// Upgrades Kubernetes on all control-plane nodes.
    ///
    /// # Errors
    /// As [`Deployment::plan_kubernetes`]; or a node gives up or does not get there in time: doing it again goes on.
    pub async fn upgrade_kubernetes(
        &self,
        options: &KubernetesOptions,
        over: TakeOver,
    ) -> anyhow::Result<KubernetesPlan> {
        unless_cancelled(&self.cancelled, self.planned_kubernetes(options, HoldView::before(over))).await??;
        let hold = self.take(over).await?;
        let upgraded = self.upgrade_kubernetes_under(&hold, options).await;
        hold.release().await;
        upgraded
    }

    /// The same under a lease: until now others could change the conditions of a plan.
    pub(super) async fn upgrade_kubernetes_under(
        &self,
        hold: &Lease<'_>,
        options: &KubernetesOptions,
    ) -> anyhow::Result<KubernetesPlan> {
        let plan = unless_cancelled(&self.cancelled, self.planned_kubernetes(options, HoldView::Own(hold))).await??;
        self.upgrade_each(&plan, options, hold).await?;
        Ok(plan)
    }

    async fn upgrade_each(
        &self,
        plan: &KubernetesPlan,
        options: &KubernetesOptions,
        hold: &Lease<'_>,
    ) -> anyhow::Result<()> {
        self.snapshot_before(plan, hold).await?;
        for (index, node) in plan.nodes.iter().enumerate() {
            self.may_go_on(hold).await?;
            self.tell(&Notice::Kubernetes { node, to: &plan.to, index, total: plan.nodes.len() });
            // The caller may stop at a notice: a node that is asked goes on without the caller.
            self.may_go_on(hold).await?;
            self.upgrade_node(&plan.to, node, options, hold).await.with_context(|| {
                format!("{} does not run Kubernetes {} yet; run the command again to continue", node.name, plan.to)
            })?;
        }
        Ok(())
    }

    /// Whether this command still holds the lease, and is not asked to end.
    pub(super) async fn may_go_on(&self, hold: &Lease<'_>) -> anyhow::Result<()> {
        Ok(unless_cancelled(&self.cancelled, hold.renew()).await??)
    }

    /// The state that the whole cluster can be restored to: as it was right before its first node began. A continued
    /// run has no better one to give, even if that one is kept elsewhere. A new run takes a fresh one, for a state of
    /// weeks ago does not help.
    async fn snapshot_before(&self, plan: &KubernetesPlan, hold: &Lease<'_>) -> anyhow::Result<()> {
        let Some(node) = plan.nodes.first() else { return Ok(()) };
        let name = before_kubernetes(&plan.to);
        if plan.begun {
            if self.snapshots.kept(&name).await.context("looking for the snapshot")?.is_none() {
                self.tell(&Notice::NoSnapshot { name: &name });
            }
            return Ok(());
        }
        let directory = self.snapshots.spool().await.context("making room for the snapshot")?;
        let pulled = directory.path().join(&name);
        let room = self.snapshots.room();
        let pulling = self.nodes.snapshot(node.address, &pulled, &room);
        let bytes = unless_ended(pulling, self.pace, || self.may_go_on(hold)).await?;
        let bytes = bytes.context("taking a snapshot of etcd")?;
        let place = self.snapshots.keep(&name, &pulled).await?;
        self.tell(&Notice::Snapshot { place: &place, bytes });
        Ok(())
    }

    async fn upgrade_node(
        &self,
        to: &str,
        node: &KubernetesNode,
        options: &KubernetesOptions,
        hold: &Lease<'_>,
    ) -> anyhow::Result<()> {
        let nodes = GuardedNodes::new(self.nodes, hold);
        // Since the plan, pods may have come, and gone with the nodes before.
        if let Some(words) = drain_deletes(self.nodes.facts(node.address).await.ok().as_ref()) {
            self.tell(&Notice::Losses { node: &node.name, words: &words });
        }
        let request = request(to, options, false);
        let asked = nodes.request(node.address, NodeRequest::UpgradeKubernetes(&request)).await?;
        if let Asked::Refused(refused) = asked {
            return Err(GaveUp(format!("it refuses: {refused}")).into());
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
                return Err(GaveUp(format!("after {} s: {}", options.limit.as_secs(), waiting.words)).into());
            }
            if said.as_ref() != Some(&waiting) {
                self.tell(&Notice::Waiting { what: &what, why: &waiting });
                said = Some(waiting);
            }
            tokio::time::sleep(self.pace).await;
        }
    }
}

fn request(to: &str, options: &KubernetesOptions, check: bool) -> kubernetes_upgrade::Request {
    kubernetes_upgrade::Request { to: to.to_owned(), drain_seconds: options.drain_seconds, check }
}

/// The missing part of a node's upgrade. `None` when it is complete.
fn missing(facts: &Node, to: &str) -> anyhow::Result<Option<String>> {
    let runs = &facts.kubernetes.version;
    let here = Minor::of(runs).is_some_and(|minor| minor.to_string() == to);
    match &facts.kubernetes.upgrade {
        Some(upgrade) => match &upgrade.error {
            Some(error) => Err(GaveUp(format!("it gave up: {error}")).into()),
            None if here => Ok(Some(format!("takes up {runs}"))),
            None => Ok(Some("moves its pods and the virtual IP away".to_owned())),
        },
        None if !here => bail!("it runs {runs} and knows of no upgrade"),
        None if facts.healthy.is_none() || !facts.ready => Ok(Some(format!("runs {runs}, waiting to be healthy"))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
