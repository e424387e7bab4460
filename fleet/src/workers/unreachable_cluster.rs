//! A cluster that cannot be asked: the records of its workers are still reported.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::cluster::{Cluster, Evicted, NodeSeen, PodSeen};
use super::token::Token;

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

    async fn add_token(&self, _: &Token) -> anyhow::Result<()> {
        self.answer()
    }

    async fn remove_token(&self, _: &str) -> anyhow::Result<()> {
        self.answer()
    }

    async fn cordon(&self, _: &NodeSeen) -> anyhow::Result<()> {
        self.answer()
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        self.answer()
    }

    async fn delete_node(&self, _: &NodeSeen) -> anyhow::Result<()> {
        self.answer()
    }

    async fn release_name(&self, _: &str) -> anyhow::Result<()> {
        self.answer()
    }
}
