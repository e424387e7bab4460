//! The deployer's requests to new nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use contract::deployer::{Fingerprint, Fingerprints};
use contract::replacement::{self, ReplacementGrant};
use contract::swap::Rejection;
use zeroize::Zeroizing;

use crate::nodes::{Answer, Answered, Credentials, Deployer, Method, clean};
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

    /// A new kubeconfig from a node of a formed cluster, in place of this one. Needs no hypervisor: the node shows a certificate of
    /// the CA in the former kubeconfig.
    ///
    /// # Errors
    /// If the node gives none, is not one of the cluster, or cannot be reached.
    async fn renew(&self, node: Ipv4Addr, former: &str) -> anyhow::Result<Zeroizing<String>>;

    /// Whether a node accepts a kubeconfig that a node of its cluster gave earlier. The node issues nothing.
    ///
    /// # Errors
    /// If the node cannot be reached, or answers something else.
    async fn accepts(&self, node: Ipv4Addr, kubeconfig: &str) -> anyhow::Result<bool>;

    /// Asks a node to admit a blank VM in place of a lost node. Each answer voids the code of the one before. `shown` are the
    /// fingerprints that the hypervisor shows of the node that is asked.
    ///
    /// # Errors
    /// If the node refuses, is not the one that the hypervisor shows, or cannot be reached. A lost answer changes nothing: it is
    /// asked again.
    async fn admit(&self, node: Ipv4Addr, _shown: &Fingerprints, lost: &str) -> anyhow::Result<ReplacementGrant> {
        bail!("{node} cannot be asked to admit a new VM for {lost}")
    }

    /// The names of the Ready nodes, read with a kubeconfig that one of them gave.
    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>>;
}

/// Why a node refuses. One of an earlier image has no such route.
fn refused(answer: &Answer) -> String {
    match answer.json::<Rejection>() {
        Ok(refused) => format!("{} [{}]", refused.reason, refused.code),
        Err(_) if answer.status == 404 => {
            "its image cannot be asked for that: replace the member on that node by hand".to_owned()
        }
        Err(_) => format!("it answered {}", answer.refusal()),
    }
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

    async fn renew(&self, node: Ipv4Addr, former: &str) -> anyhow::Result<Zeroizing<String>> {
        Ok(self.deployer()?.renewed(node, &Credentials::parse(former)?).await?.kubeconfig(USER))
    }

    async fn accepts(&self, node: Ipv4Addr, kubeconfig: &str) -> anyhow::Result<bool> {
        let client = self.deployer()?.client(&Credentials::parse(kubeconfig)?)?;
        let answer = client.ask_node(node, Method::GET, "/v1/node", None).await?;
        match answer.status {
            200 => Ok(true),
            401 | 403 => Ok(false),
            _ => Err(Answered::by("the node", &answer).into()),
        }
    }

    async fn admit(&self, node: Ipv4Addr, shown: &Fingerprints, lost: &str) -> anyhow::Result<ReplacementGrant> {
        let deployer = self.deployer()?;
        let client = deployer.client(&deployer.credentials(node, shown).await?)?;
        let request = serde_json::to_value(replacement::Request { node: lost.to_owned() })?;
        let answer = client.ask_node(node, Method::POST, replacement::PATH, Some(&request)).await?;
        ensure!(answer.status == 200, "{}", refused(&answer));
        // Parsed as it was sent: a cut property would be another one.
        let grant: ReplacementGrant = serde_json::from_slice(&answer.body).context("understanding the answer")?;
        ensure!(grant.node == lost, "it admits {}, not {lost}", clean(&grant.node));
        Ok(grant)
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        let client = self.deployer()?.client(&Credentials::parse(kubeconfig)?)?;
        let nodes = Cluster::nodes(&client).await?;
        Ok(nodes.into_iter().filter(|node| node.ready).map(|node| node.name).collect())
    }
}
