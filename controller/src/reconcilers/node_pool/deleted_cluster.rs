//! The API of a cluster that is being deleted, for its workers: it is not called, and pods are not evicted. Pods, tokens and
//! nodes end with the cluster.

use std::collections::BTreeMap;

use async_trait::async_trait;
use fleet::workers::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};

/// A cluster that is deleted as a whole.
pub(super) struct DeletedCluster;

#[async_trait]
impl Cluster for DeletedCluster {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        Ok(Vec::new())
    }

    async fn pods(&self, _: &str) -> anyhow::Result<Vec<PodSeen>> {
        Ok(Vec::new())
    }

    async fn local_claims(&self, _: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        Ok(BTreeMap::new())
    }

    async fn announced(&self, _: &str) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn let_in(&self, _: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        match change {
            ClusterChange::AddToken(_) => anyhow::bail!("the cluster is being deleted: no worker can join it"),
            _ => Ok(()),
        }
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        Ok(Evicted::Going)
    }
}
