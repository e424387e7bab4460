//! Where the VMs of a cluster are put, and how its nodes are asked: what a Provider and a vCenter behind it come to for whoever makes
//! clusters. There are two: Providers, and a place in memory for tests.

use std::sync::Arc;

use async_trait::async_trait;
use contract::deployer::PrivateKey;
use fleet::control_plane::{ByKey, Guests};
use fleet::hypervisor::Hypervisor;
use fleet::lease::Snapshots;
use fleet::nodes::{AddOnSeen, Client, Credentials, Deployer};
use fleet::upgrade::Nodes;
use fleet::workers::Cluster;

use super::providers::{ClusterPlacement, Providers, Unavailable};
use super::snapshots::TenantSnapshots;
use crate::objects::{Provider, TenantCluster};

/// Leads to the VMs and the nodes of clusters.
#[async_trait]
pub trait Infrastructure: Send + Sync {
    /// What runs the VMs of one cluster. With `make`, a place that it needs for itself is made if it is not there.
    ///
    /// # Errors
    /// Why it cannot be asked, or what of the place is not there.
    async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> Result<Box<dyn Hypervisor>, Unavailable>;

    /// A cluster as it is asked for its workers, by its kubeconfig.
    ///
    /// # Errors
    /// When that is none.
    fn cluster(&self, kubeconfig: &str) -> anyhow::Result<Box<dyn Cluster>>;

    /// What runs of a cluster's add-ons, by its kubeconfig.
    ///
    /// # Errors
    /// When that is none, or the cluster does not answer.
    async fn add_ons(&self, kubeconfig: &str) -> anyhow::Result<Vec<AddOnSeen>>;

    /// The control nodes of a cluster, by its deployer's key; without it they cannot be asked.
    fn guests(&self, key: Option<PrivateKey>) -> Box<dyn Guests>;

    /// The same as they are asked to be upgraded, by a kubeconfig.
    ///
    /// # Errors
    /// When that is none.
    fn nodes(&self, kubeconfig: &str) -> anyhow::Result<Arc<dyn Nodes>>;

    /// Where the snapshot is kept that comes before an upgrade of a cluster.
    fn snapshots(&self, cluster: &TenantCluster) -> Box<dyn Snapshots>;

    /// Removes what is kept there, as far as that is on this node.
    async fn clears(&self, cluster: &TenantCluster) -> anyhow::Result<()>;
}

#[async_trait]
impl Infrastructure for Providers {
    async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> Result<Box<dyn Hypervisor>, Unavailable> {
        Providers::hypervisor(self, provider, place, make).await
    }

    fn cluster(&self, kubeconfig: &str) -> anyhow::Result<Box<dyn Cluster>> {
        Ok(Box::new(self.client(kubeconfig)?))
    }

    async fn add_ons(&self, kubeconfig: &str) -> anyhow::Result<Vec<AddOnSeen>> {
        self.client(kubeconfig)?.add_ons().await
    }

    fn guests(&self, key: Option<PrivateKey>) -> Box<dyn Guests> {
        Box::new(ByKey(key.map(|key| Deployer::new(key).within(self.bodies().clone()))))
    }

    fn nodes(&self, kubeconfig: &str) -> anyhow::Result<Arc<dyn Nodes>> {
        Ok(Arc::new(self.client(kubeconfig)?))
    }

    fn snapshots(&self, cluster: &TenantCluster) -> Box<dyn Snapshots> {
        Box::new(TenantSnapshots::of(self, cluster))
    }

    async fn clears(&self, cluster: &TenantCluster) -> anyhow::Result<()> {
        TenantSnapshots::of(self, cluster).clear().await
    }
}

impl Providers {
    /// A client of a tenant's cluster: all of them share the room for what they answer.
    fn client(&self, kubeconfig: &str) -> anyhow::Result<Client> {
        Ok(Client::new(&Credentials::parse(kubeconfig)?)?.within(self.bodies().clone()))
    }
}
