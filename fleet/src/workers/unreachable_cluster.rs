//! A cluster that cannot be asked: the records of its workers are still reported.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::cluster::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};

/// Why it cannot be asked: the error of each request.
#[derive(Clone, Debug)]
pub struct UnreachableCluster(pub String);

impl UnreachableCluster {
    fn answer<T>(&self) -> anyhow::Result<T> {
        Err(anyhow::anyhow!("{}", self.0))
    }
}

#[async_trait]
impl Cluster for UnreachableCluster {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        self.answer()
    }

    async fn pods(&self, _: &str) -> anyhow::Result<Vec<PodSeen>> {
        self.answer()
    }

    async fn local_claims(&self, _: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        self.answer()
    }

    async fn announced(&self, _: &str) -> anyhow::Result<Vec<String>> {
        self.answer()
    }

    async fn let_in(&self, _: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        self.answer()
    }

    async fn change(&self, _: ClusterChange<'_>) -> anyhow::Result<()> {
        self.answer()
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        self.answer()
    }
}
