//! The nodes of a cluster that may not be the one that an upgrade was planned for: nobody asks them anything.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::bail;
use async_trait::async_trait;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::swap;
use uuid::Uuid;

use super::nodes::{Asked, Nodes};

/// Nodes that are not asked.
pub struct Unasked;

impl Unasked {
    fn is_not_asked<T>() -> anyhow::Result<T> {
        bail!("it is not asked, for its cluster calls itself otherwise than when the upgrade was planned")
    }
}

#[async_trait]
impl Nodes for Unasked {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        Self::is_not_asked()
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        Self::is_not_asked()
    }

    async fn facts(&self, _: Ipv4Addr) -> anyhow::Result<Node> {
        Self::is_not_asked()
    }

    async fn begin_swap(&self, _: Ipv4Addr, _: &swap::Request) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn cancel_swap(&self, _: Ipv4Addr, _: Uuid) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn evacuate(&self, _: Ipv4Addr, _: &swap::EvacuationRequest) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn cancel_evacuation(&self, _: Ipv4Addr, _: Uuid) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn commit(&self, _: Ipv4Addr, _: Uuid) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn upgrade_kubernetes(&self, _: Ipv4Addr, _: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        Self::is_not_asked()
    }

    async fn snapshot(&self, _: Ipv4Addr, _: &Path) -> anyhow::Result<u64> {
        Self::is_not_asked()
    }

    async fn publish(&self, _: &str) -> anyhow::Result<()> {
        Self::is_not_asked()
    }
}
