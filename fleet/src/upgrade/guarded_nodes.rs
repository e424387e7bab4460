//! The nodes as an upgrade may ask them: each request that changes one is made under a lease that was confirmed just
//! before.

use std::net::Ipv4Addr;
use std::path::Path;

use async_trait::async_trait;
use contract::node::Node;
use uuid::Uuid;

use super::nodes::{Asked, NodeRequest, Nodes};
use crate::engine::may;
use crate::lease::{Lease, SpaceQuota};

pub struct GuardedNodes<'a> {
    nodes: &'a dyn Nodes,
    hold: &'a Lease<'a>,
}

impl<'a> GuardedNodes<'a> {
    /// The nodes for as long as the lease is held.
    pub fn new(nodes: &'a dyn Nodes, hold: &'a Lease<'a>) -> Self {
        Self { nodes, hold }
    }

    /// Credentials are obtained before: that may take longer than a confirmation is valid.
    async fn may(&self) -> anyhow::Result<()> {
        self.nodes.ready().await?;
        may(self.hold).await.map_err(|error| error.source)
    }
}

#[async_trait]
impl Nodes for GuardedNodes<'_> {
    async fn ready(&self) -> anyhow::Result<()> {
        self.nodes.ready().await
    }

    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.nodes.cluster().await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.nodes.control_nodes().await
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.nodes.facts(node).await
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.may().await?;
        self.nodes.request(node, request).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.nodes.snapshot(node, to, room).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        self.nodes.publish(status).await
    }
}
