//! Calls a cluster's control-plane nodes for upgrades. The cluster's API, which the tenant controls, lists them. Only nodes that
//! were made for the cluster are called, at their recorded addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use async_trait::async_trait;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::swap;
use fleet::lease::SpaceQuota;
use fleet::upgrade::{Asked, Nodes};
use uuid::Uuid;

use crate::objects::TenantCluster;

pub(super) struct OwnNodes {
    nodes: Arc<dyn Nodes>,
    own: BTreeMap<String, Ipv4Addr>,
}

impl OwnNodes {
    /// The nodes that were made for a cluster. `nodes` calls them.
    pub(super) fn new(nodes: Arc<dyn Nodes>, cluster: &TenantCluster) -> Self {
        let deployment = cluster.status.as_ref().and_then(|status| status.deployment.as_ref());
        let made = deployment.into_iter().flat_map(|deployment| &deployment.record.nodes);
        let own = made.map(|node| (node.name.clone(), node.address)).collect();
        Self { nodes, own }
    }

    /// The error names no address: its text would reveal which addresses answer.
    fn of(&self, node: Ipv4Addr) -> anyhow::Result<&dyn Nodes> {
        ensure!(
            self.own.values().any(|own| *own == node),
            "no control-plane node was made for the cluster at that address"
        );
        Ok(&*self.nodes)
    }
}

#[async_trait]
impl Nodes for OwnNodes {
    async fn ready(&self) -> anyhow::Result<()> {
        self.nodes.ready().await
    }

    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.nodes.cluster().await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        let seen = self.nodes.control_nodes().await?;
        let strangers = seen.iter().filter(|(name, address)| self.own.get(name) != Some(address)).count();
        ensure!(
            strangers == 0,
            "the cluster's API lists {strangers} control-plane nodes that were not made for it, or are elsewhere: remove them"
        );
        Ok(seen)
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.of(node)?.facts(node).await
    }

    async fn begin_swap(&self, node: Ipv4Addr, swap: &swap::Request) -> anyhow::Result<Asked> {
        self.of(node)?.begin_swap(node, swap).await
    }

    async fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.of(node)?.cancel_swap(node, swap).await
    }

    async fn evacuate(&self, node: Ipv4Addr, request: &swap::EvacuationRequest) -> anyhow::Result<Asked> {
        self.of(node)?.evacuate(node, request).await
    }

    async fn cancel_evacuation(&self, node: Ipv4Addr, id: Uuid) -> anyhow::Result<Asked> {
        self.of(node)?.cancel_evacuation(node, id).await
    }

    async fn commit(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.of(node)?.commit(node, swap).await
    }

    async fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        self.of(node)?.upgrade_kubernetes(node, request).await
    }

    async fn renew_certificates(&self, node: Ipv4Addr, id: Uuid) -> anyhow::Result<Asked> {
        self.of(node)?.renew_certificates(node, id).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.of(node)?.snapshot(node, to, room).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        self.nodes.publish(status).await
    }
}
