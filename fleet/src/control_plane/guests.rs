//! The deployer's requests to new nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::Context;
use async_trait::async_trait;
use contract::deployer::{Fingerprint, Fingerprints};
use zeroize::Zeroizing;

use crate::nodes::{Credentials, Deployer};
use crate::workers::Cluster;

/// The user in a deployer's kubeconfig. The API server uses the certificate.
pub const USER: &str = "deployer";

/// Access to the new nodes.
#[async_trait]
pub trait Guests: Send + Sync {
    /// Fingerprint of the deployer key that it uses. `None` if it has no key.
    fn deployer_fingerprint(&self) -> Option<Fingerprint>;

    /// The kubeconfig that a node gives its deployer once the cluster has formed. `shown` are the fingerprints that the
    /// hypervisor shows of the node.
    ///
    /// # Errors
    /// If the node gives none yet, is not the one that the hypervisor shows, or cannot be reached.
    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>>;

    /// The names of the Ready nodes, read with a kubeconfig that one of them gave.
    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>>;
}

/// Access with the deployer's key. Without the key the nodes cannot be asked.
pub struct ByKey(pub Option<Deployer>);

impl ByKey {
    fn deployer(&self) -> anyhow::Result<&Deployer> {
        self.0.as_ref().context("the deployer's key is not at hand")
    }
}

#[async_trait]
impl Guests for ByKey {
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.0.as_ref()?.fingerprint()
    }

    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        Ok(self.deployer()?.credentials(node, shown).await?.kubeconfig(USER))
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        let client = self.deployer()?.client(&Credentials::parse(kubeconfig)?)?;
        let nodes = Cluster::nodes(&client).await?;
        Ok(nodes.into_iter().filter(|node| node.ready).map(|node| node.name).collect())
    }
}
