//! Renews the certificates of the control-plane nodes, one node after the other. Each node must run with its new
//! certificates and be healthy again before the next one is asked.

use std::time::Duration;

use anyhow::{Context as _, bail};
use contract::node::Node;
use tokio::time::Instant;
use uuid::Uuid;

use super::cluster_seen::{ClusterSeen, SeenNode};
use super::guarded_nodes::GuardedNodes;
use super::hold_view::HoldView;
use super::judge::{self, Judged};
use super::kubernetes_plan::is_last;
use super::notice::Notice;
use super::reason;
use super::refusal::{NODE_SILENT, Refusal};
use super::{Asked, Deployment, NodeRequest, Nodes as _};
use crate::cancel::{Cancelled, unless_cancelled};
use crate::engine::Reason;
use crate::lease::{Lease, TakeOver};

/// A node that did not run with its new certificates in time, or until the operator asked to end. Running the command
/// again renews all nodes again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRenewed(String);

impl Deployment<'_> {
    /// Renews the certificates of all control-plane nodes now. `limit` is the time for one node. Returns the nodes in
    /// their order.
    ///
    /// # Errors
    /// A node is unhealthy, does not answer, or an upgrade is not committed: no certificate was renewed.
    /// [`NotRenewed`], or a node refuses: the error names the nodes that have new certificates, and those that keep
    /// theirs.
    pub async fn renew_certificates(&self, limit: Duration, over: TakeOver) -> anyhow::Result<Vec<String>> {
        let hold = self.take(over).await?;
        let renewed = self.renew_each(&hold, limit).await;
        hold.release().await;
        renewed
    }

    async fn renew_each(&self, hold: &Lease<'_>, limit: Duration) -> anyhow::Result<Vec<String>> {
        let seen = unless_cancelled(&self.cancelled, self.cluster_seen(HoldView::Own(hold))).await??;
        let nodes = in_order(&seen)?;
        for (index, node) in nodes.iter().enumerate() {
            let renewed = self.renew_node(node, nodes.len(), limit, hold).await;
            // The command does not go on with the nodes that are left when it is given again.
            let renewed = renewed.map_err(|error| match error.is::<Cancelled>() {
                true => anyhow::Error::from(NotRenewed("asked to end".to_owned())),
                false => error,
            });
            renewed.with_context(|| failed(&nodes, index))?;
            let note = format!("{}: its certificates are renewed ({} of {})", node.name, index + 1, nodes.len());
            self.tell(&Notice::Done { note: &note });
        }
        Ok(nodes.into_iter().map(|node| node.name.clone()).collect())
    }

    async fn renew_node(
        &self,
        node: &SeenNode,
        expected: usize,
        limit: Duration,
        hold: &Lease<'_>,
    ) -> anyhow::Result<()> {
        let what = format!("{} to run with new certificates", node.name);
        let (id, started) = (Uuid::new_v4(), Instant::now());
        let (mut is_renewed, mut said) = (false, None);
        loop {
            self.may_go_on(hold).await?;
            let Some(waiting) = self.step(node, expected, id, &mut is_renewed, hold).await? else { return Ok(()) };
            if started.elapsed() >= limit {
                return Err(NotRenewed(format!("after {} s: {}", limit.as_secs(), waiting.words)).into());
            }
            if said.as_ref() != Some(&waiting) {
                self.tell(&Notice::Waiting { what: &what, why: &waiting });
                said = Some(waiting);
            }
            tokio::time::sleep(self.pace).await;
        }
    }

    /// Asks the node once. Returns what is waited for, if anything.
    async fn step(
        &self,
        node: &SeenNode,
        expected: usize,
        id: Uuid,
        is_renewed: &mut bool,
        hold: &Lease<'_>,
    ) -> anyhow::Result<Option<Reason>> {
        let silent = |error: &anyhow::Error| Ok(Some(Reason::new(NODE_SILENT, format!("{error:#}"))));
        if !*is_renewed {
            let request = NodeRequest::RenewCertificates(id);
            match GuardedNodes::new(self.nodes, hold).request(node.address, request).await {
                Ok(Asked::Done) => *is_renewed = true,
                Ok(Asked::Begun) => {
                    return Ok(Some(Reason::new(reason::WAITING, "its control plane starts with them")));
                }
                Ok(Asked::Refused(refused)) => bail!("it refuses: {refused}"),
                Ok(Asked::Unknown) => bail!("its image cannot do it from outside: upgrade the image first"),
                // The lease is lost, or the node does not answer, which the next look tells.
                Err(error) => return silent(&error),
            }
        }
        match self.nodes.facts(node.address).await {
            Ok(facts) => Ok(lacking(&facts, node, expected).map(|lacks| Reason::new(reason::WAITING, lacks))),
            Err(error) => silent(&error),
        }
    }
}

/// The nodes in the order in which their certificates are renewed: the one that leads etcd or holds the virtual IP comes last.
fn in_order(seen: &ClusterSeen) -> anyhow::Result<Vec<&SeenNode>> {
    let mut judged = Judged::default();
    judge::cluster(&mut judged, seen);
    let mut nodes = Vec::new();
    for node in &seen.nodes {
        let Some(facts) = judge::answering(&mut judged, node) else { continue };
        judge::health(&mut judged, seen.nodes.len(), node, facts);
        nodes.push((is_last(facts), node));
    }
    if !judged.refusals.is_empty() {
        let reasons =
            judged.refusals.iter().map(|Refusal { code, subject, reason }| format!("\n  {code}: {subject}: {reason}"));
        bail!("no certificate was renewed:{}", reasons.collect::<String>());
    }
    nodes.sort_by_key(|(is_last, node)| (*is_last, node.name.clone()));
    Ok(nodes.into_iter().map(|(_, node)| node).collect())
}

/// Says which node failed, and which of the others have new certificates.
fn failed(nodes: &[&SeenNode], index: usize) -> String {
    let names = |nodes: &[&SeenNode]| match nodes {
        [] => "none".to_owned(),
        nodes => nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", "),
    };
    format!(
        "cannot renew the certificates of {} (renewed: {}; not begun: {})",
        nodes[index].name,
        names(&nodes[..index]),
        names(&nodes[index + 1..])
    )
}

/// The reason why the node is not healthy, if any.
fn lacking(facts: &Node, node: &SeenNode, expected: usize) -> Option<String> {
    let mut judged = Judged::default();
    judge::health(&mut judged, expected, node, facts);
    judged.refusals.into_iter().next().map(|refusal| refusal.reason)
}

#[cfg(test)]
mod tests;
