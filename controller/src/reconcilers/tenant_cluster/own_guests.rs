//! A cluster's control nodes as they are asked for credentials. A node is its tenant's and says what it likes: only what leads to the cluster
//! itself is taken, for whoever went by anything else would ask where the tenant says, from where the controller is.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use contract::deployer::{Fingerprints, PrivateKey};
use contract::ports;
use fleet::control_plane::{DeploymentRecord, Guests};
use fleet::hypervisor::{PowerState, Vm};
use fleet::nodes::Credentials;
use zeroize::Zeroizing;

use super::Reconciler;
use super::place::ProviderSession;
use super::secrets::is_of;
use crate::objects::TenantCluster;

/// The control nodes of one cluster.
struct OwnGuests<'a> {
    guests: Box<dyn Guests>,
    cluster: &'a TenantCluster,
}

#[async_trait]
impl Guests for OwnGuests<'_> {
    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        let given = self.guests.kubeconfig(node, shown).await?;
        let server = Credentials::parse(&given).ok().and_then(|given| given.address());
        let is_own = server.is_some_and(|server| {
            server.port() == ports::API && (*server.ip() == node || is_of(self.cluster, *server.ip()))
        });
        // Where it leads is not said: who is told that asks about addresses by it.
        ensure!(is_own, "it gives a kubeconfig that leads elsewhere than to the cluster");
        Ok(given)
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        self.guests.ready(kubeconfig).await
    }
}

impl Reconciler<'_> {
    /// The control nodes of a cluster, by its deployer's key; without it they cannot be asked.
    pub(super) fn guests<'c>(&self, cluster: &'c TenantCluster, key: Option<PrivateKey>) -> Box<dyn Guests + 'c> {
        Box::new(OwnGuests { guests: self.places.guests(key), cluster })
    }
}

/// A kubeconfig that one of the control nodes gives its deployer: one that shows the authority with which the cluster has formed.
///
/// # Errors
/// When none gives one.
pub(super) async fn issued(
    opened: &ProviderSession,
    guests: &dyn Guests,
    kept: &DeploymentRecord,
) -> anyhow::Result<Zeroizing<String>> {
    let vms = opened.hypervisor.vms().await?;
    let mut last = anyhow::anyhow!("no VM of a control node is on");
    for node in &kept.nodes {
        let is_its = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
        for vm in vms.iter().filter(is_its).filter(|vm| vm.power == PowerState::On) {
            let given = async {
                let shown = opened.hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
                let known = kept.ca_fingerprint.context("nothing says which authority is the cluster's")?;
                ensure!(shown.ca == known, "it shows the authority {}, not {known}", shown.ca);
                guests.kubeconfig(node.address, &shown).await
            };
            match given.await {
                Ok(kubeconfig) => return Ok(kubeconfig),
                Err(error) => last = error.context(vm.name.clone()),
            }
        }
    }
    Err(last)
}
