//! Gets credentials from a cluster's control-plane nodes. The tenant controls the nodes, so a kubeconfig is accepted only if it
//! leads to the cluster. Otherwise the tenant could direct requests of the controller to any address.

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
        // The error does not contain the address: its text would reveal which addresses answer.
        ensure!(is_own, "it gives a kubeconfig that leads elsewhere than to the cluster");
        Ok(given)
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        self.guests.ready(kubeconfig).await
    }
}

impl Reconciler<'_> {
    /// The control-plane nodes of a cluster. Without the deployer's key they cannot be called.
    pub(super) fn guests<'c>(&self, cluster: &'c TenantCluster, key: Option<PrivateKey>) -> Box<dyn Guests + 'c> {
        Box::new(OwnGuests { guests: self.places.guests(key), cluster })
    }
}

/// A kubeconfig from one of the control-plane nodes, which must show the CA with which the cluster has formed.
///
/// # Errors
/// No node returned one.
pub(super) async fn issued(
    opened: &ProviderSession,
    guests: &dyn Guests,
    kept: &DeploymentRecord,
) -> anyhow::Result<Zeroizing<String>> {
    let vms = opened.hypervisor.vms().await?;
    let mut last = anyhow::anyhow!("no VM of a control-plane node is on");
    for node in &kept.nodes {
        let is_its = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
        for vm in vms.iter().filter(is_its).filter(|vm| vm.power == PowerState::On) {
            let given = async {
                let shown = opened.hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
                let known = kept.ca_fingerprint.context("the CA of the cluster is unknown")?;
                ensure!(shown.ca == known, "it shows the CA {}, not {known}", shown.ca);
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
