//! The cluster, as a command may change it: each change is requested under a lease that was confirmed right before.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::cluster::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};
use super::reason;
use crate::engine::{ActionError, may};
use crate::lease::Lease;

pub(super) struct GuardedCluster<'a> {
    pub(super) cluster: &'a dyn Cluster,
    pub(super) hold: &'a Lease<'a>,
}

impl ActionError {
    /// The cluster's API failed.
    pub(super) fn api(error: anyhow::Error) -> Self {
        Self::of(reason::API, error)
    }
}

impl GuardedCluster<'_> {
    async fn may(&self) -> anyhow::Result<()> {
        may(self.hold).await.map_err(|error| error.source)
    }
}

#[async_trait]
impl Cluster for GuardedCluster<'_> {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        self.cluster.nodes().await
    }

    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>> {
        self.cluster.pods(node).await
    }

    async fn local_claims(&self, nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        self.cluster.local_claims(nodes).await
    }

    async fn announced(&self, node: &str) -> anyhow::Result<Vec<String>> {
        self.cluster.announced(node).await
    }

    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        self.cluster.let_in(nodes).await
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        self.may().await?;
        self.cluster.change(change).await
    }

    async fn evict(&self, pod: &PodSeen) -> anyhow::Result<Evicted> {
        self.may().await?;
        self.cluster.evict(pod).await
    }
}
