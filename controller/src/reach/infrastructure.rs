//! Gives reconcilers the hypervisors and clients of clusters. There are two implementations: [`Providers`], and one in memory for
//! tests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::configure::Properties;
use contract::deployer::PrivateKey;
use contract::kubeconfig::HANDED_OVER_HOURS;
use fleet::control_plane::{ByKey, Guests};
use fleet::hypervisor::Hypervisor;
use fleet::lease::Snapshots;
use fleet::nodes::{AddOnSeen, Client, ConfigureAnswer, Credentials, Deployer};
use fleet::upgrade::Nodes;
use fleet::workers::Cluster;
use zeroize::Zeroizing;

use super::providers::{ClusterPlacement, Providers, Unavailable};
use super::snapshots::TenantSnapshots;
use crate::objects::{Provider, TenantCluster};

#[async_trait]
pub trait Infrastructure: Send + Sync {
    /// The hypervisor of one cluster. With `make`, the folder of the cluster is created if it is missing.
    async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> Result<Box<dyn Hypervisor>, Unavailable>;

    /// A client of a cluster that fleet uses for the cluster's workers.
    fn cluster(&self, kubeconfig: &str) -> anyhow::Result<Box<dyn Cluster>>;

    /// The add-ons that run in a cluster.
    async fn add_ons(&self, kubeconfig: &str) -> anyhow::Result<Vec<AddOnSeen>>;

    /// The agents of a cluster's control-plane nodes. Without the deployer's key they cannot be called.
    fn guests(&self, key: Option<PrivateKey>) -> Box<dyn Guests>;

    /// A kubeconfig of `user` with a new key, valid for [`HANDED_OVER_HOURS`], issued with the kubeconfig of the cluster's
    /// deployer. `makes` gives the user all rights in the cluster.
    async fn issue(&self, kubeconfig: &str, user: &str, makes: bool) -> anyhow::Result<Zeroizing<String>>;

    /// Changes properties of a control-plane node. `dry_run` only checks the change.
    async fn configure(
        &self,
        kubeconfig: &str,
        node: Ipv4Addr,
        asked: &Properties,
        dry_run: bool,
    ) -> anyhow::Result<ConfigureAnswer>;

    /// A client of a cluster that fleet uses for upgrades of its control-plane nodes.
    fn nodes(&self, kubeconfig: &str) -> anyhow::Result<Arc<dyn Nodes>>;

    /// The store for the snapshot that is taken before an upgrade of a cluster.
    fn snapshots(&self, cluster: &TenantCluster) -> Box<dyn Snapshots>;

    /// Removes the snapshots of a cluster that are on this node.
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

    async fn issue(&self, kubeconfig: &str, user: &str, makes: bool) -> anyhow::Result<Zeroizing<String>> {
        let (own, client) = (Credentials::parse(kubeconfig)?, self.client(kubeconfig)?);
        let life = Duration::from_secs(3600 * u64::from(HANDED_OVER_HOURS));
        let issued = client.issue(&own, user, life).await?;
        if makes {
            client.make_administrator(user).await?;
        }
        Ok(issued.kubeconfig("admin"))
    }

    async fn configure(
        &self,
        kubeconfig: &str,
        node: Ipv4Addr,
        asked: &Properties,
        dry_run: bool,
    ) -> anyhow::Result<ConfigureAnswer> {
        self.client(kubeconfig)?.configure(node, asked, dry_run).await
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
    /// A client of a tenant cluster. All clients share the memory for large answers.
    fn client(&self, kubeconfig: &str) -> anyhow::Result<Client> {
        Ok(Client::new(&Credentials::parse(kubeconfig)?)?.within(self.bodies().clone()))
    }
}
