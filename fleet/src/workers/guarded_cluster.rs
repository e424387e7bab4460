//! The cluster, as a command may change it: each change is requested under a lease that was confirmed right before.

use std::collections::BTreeMap;

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

delegate! {
    impl Cluster for GuardedCluster<'_> {
        nodes() -> anyhow::Result<Vec<NodeSeen>> = cluster.nodes;
        pods(node: &str) -> anyhow::Result<Vec<PodSeen>> = cluster.pods;
        local_claims(nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> = cluster.local_claims;
        announced(node: &str) -> anyhow::Result<Vec<String>> = cluster.announced;
        let_in(nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> = cluster.let_in;
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
