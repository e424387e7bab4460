//! Calls a cluster's control-plane nodes, which the tenant controls. Only nodes that were made for the cluster are called, at their
//! recorded addresses, whatever the cluster's API lists. A kubeconfig is accepted only if it leads to the cluster: otherwise the
//! tenant could direct requests of the controller to any address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use contract::deployer::{Fingerprint, Fingerprints, PrivateKey};
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::{ports, swap};
use fleet::control_plane::{DeploymentRecord, Guests, Node as BegunNode};
use fleet::hypervisor::{PowerState, Vm};
use fleet::lease::SpaceQuota;
use fleet::nodes::Credentials;
use fleet::upgrade::{Asked, Nodes};
use kube::ResourceExt;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Reconciler;
use super::place::ProviderSession;
use super::secrets::is_of;
use crate::decisions::ControlNode;
use crate::objects::{Deployment, Machine, TenantCluster};

struct OwnGuests<'a> {
    guests: Box<dyn Guests>,
    cluster: &'a TenantCluster,
}

#[async_trait]
impl Guests for OwnGuests<'_> {
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.guests.deployer_fingerprint()
    }

    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        let given = self.guests.kubeconfig(node, shown).await?;
        let server = Credentials::parse(&given).ok().and_then(|given| given.address());
        let is_own = server.is_some_and(|server| {
            server.port() == ports::API && (*server.ip() == node || is_of(self.cluster, *server.ip()))
        });
        // The error does not contain the address: its text would reveal which addresses answer.
        ensure!(is_own, "its kubeconfig does not lead to the cluster");
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

/// The control-plane nodes of a cluster as they were begun.
pub(in crate::reconcilers) fn nodes(deployment: &Deployment, machines: &[Machine]) -> Vec<ControlNode> {
    let node = |node: &BegunNode| {
        let machine = machines.iter().find(|machine| machine.name_any() == node.name)?;
        Some(ControlNode {
            name: node.name.clone(),
            address: node.address,
            machine: machine.metadata.uid.as_deref()?.parse::<Uuid>().ok()?,
            zone: machine.spec.zone.clone(),
        })
    };
    deployment.record.nodes.iter().filter_map(node).collect()
}

pub(super) struct OwnNodes {
    nodes: Arc<dyn Nodes>,
    own: BTreeMap<String, Ipv4Addr>,
}

impl OwnNodes {
    /// The nodes that were made for a cluster. `nodes` calls them.
    pub(super) fn new(nodes: Arc<dyn Nodes>, cluster: &TenantCluster) -> Self {
        let made = cluster.deployment().into_iter().flat_map(|deployment| &deployment.record.nodes);
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
