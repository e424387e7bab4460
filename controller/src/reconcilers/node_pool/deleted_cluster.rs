//! The cluster of workers that go with it: nobody in it is asked, and nothing is moved away from them. Their pods and tokens end with the
//! cluster, and so do their nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use fleet::workers::{Cluster, Evicted, NodeSeen, PodSeen, Token};

/// A cluster that goes as a whole.
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

    async fn add_token(&self, _: &Token) -> anyhow::Result<()> {
        anyhow::bail!("the cluster goes: nobody joins it")
    }

    async fn remove_token(&self, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    async fn cordon(&self, _: &NodeSeen) -> anyhow::Result<()> {
        Ok(())
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        Ok(Evicted::Going)
    }

    async fn delete_node(&self, _: &NodeSeen) -> anyhow::Result<()> {
        Ok(())
    }

    async fn release_name(&self, _: &str) -> anyhow::Result<()> {
        Ok(())
    }
}
