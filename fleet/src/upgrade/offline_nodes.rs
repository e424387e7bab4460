//! The nodes of a cluster that is not asked: an upgrade may have been planned for another one, or no access to it is
//! known.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::bail;
use async_trait::async_trait;
use contract::node::Node;
use uuid::Uuid;

use super::nodes::{Asked, NodeRequest, Nodes};
use crate::lease::SpaceQuota;

/// Nodes that are not asked, and why.
pub struct OfflineNodes(String);

impl OfflineNodes {
    /// The nodes of a cluster that is not asked, `because` of something.
    pub fn because(because: impl Into<String>) -> Self {
        Self(because.into())
    }

    /// Those of a cluster that may not be the one that an upgrade was planned for.
    pub(super) fn of_another_cluster() -> Self {
        Self::because("its cluster calls itself otherwise than when the upgrade was planned")
    }

    fn is_not_asked<T>(&self) -> anyhow::Result<T> {
        bail!("it is not asked: {}", self.0)
    }
}

#[async_trait]
impl Nodes for OfflineNodes {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.is_not_asked()
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.is_not_asked()
    }

    async fn facts(&self, _: Ipv4Addr) -> anyhow::Result<Node> {
        self.is_not_asked()
    }

    async fn request(&self, _: Ipv4Addr, _: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.is_not_asked()
    }

    async fn snapshot(&self, _: Ipv4Addr, _: &Path, _: &SpaceQuota) -> anyhow::Result<u64> {
        self.is_not_asked()
    }

    async fn publish(&self, _: &str) -> anyhow::Result<()> {
        self.is_not_asked()
    }
}
