//! The nodes as an upgrade may ask them: each request that changes one is made under a lease that was confirmed just
//! before.

use std::net::Ipv4Addr;
use std::path::Path;

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

delegate! {
    impl Nodes for GuardedNodes<'_> {
        ready() -> anyhow::Result<()> = nodes.ready;
        cluster() -> anyhow::Result<Uuid> = nodes.cluster;
        control_nodes() -> anyhow::Result<Vec<(String, Ipv4Addr)>> = nodes.control_nodes;
        facts(node: Ipv4Addr) -> anyhow::Result<Node> = nodes.facts;
        snapshot(node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> = nodes.snapshot;
        publish(status: &str) -> anyhow::Result<()> = nodes.publish;
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.may().await?;
        self.nodes.request(node, request).await
    }
}
