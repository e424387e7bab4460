//! Calls a cluster's control-plane nodes, which the tenant controls. Only nodes that were made for the cluster are called, at their
//! recorded addresses, whatever the cluster's API lists. A kubeconfig is accepted only if it leads to the cluster: otherwise the
//! tenant could direct requests of the controller to any address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use contract::deployer::{Fingerprint, Fingerprints, PrivateKey};
use contract::node::Node;
use contract::ports;
use contract::replacement::ReplacementGrant;
use fleet::control_plane::{DeploymentRecord, Guests, Node as BegunNode};
use fleet::hypervisor::{PowerState, Vm};
use fleet::lease::SpaceQuota;
use fleet::nodes::Credentials;
use fleet::upgrade::{Asked, NodeRequest, Nodes};
use fleet::workers::NodeSeen;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Reconciler;
use super::keys::OwnKubeconfig;
use super::place::ProviderSession;
use super::secrets::is_of;
use crate::context::ReconcileError;
use crate::decisions::{ControlNode, Observed, is_due};
use crate::objects::{Deployment, Machine, TenantCluster};

pub(super) struct OwnGuests<'a> {
    guests: Box<dyn Guests>,
    cluster: &'a TenantCluster,
    /// The kubeconfig at hand, as long as it does not have to be renewed. A node that accepts it issues none.
    pub(super) held: Option<Zeroizing<String>>,
}

/// The controller's access to a formed cluster before it asks vCenter.
#[derive(Default)]
pub(super) struct ClusterAccess {
    /// The controller's own kubeconfig, if it leads to the cluster. It may have expired.
    pub(super) kubeconfig: Option<Zeroizing<String>>,
    /// When it expires. `None` if it is unknown, or if the kubeconfig is of a former key.
    ends: Option<Time>,
    /// The nodes that the cluster's own API lists.
    pub(super) api: Observed<Vec<NodeSeen>>,
}

impl ClusterAccess {
    /// Whether the kubeconfig is missing or of a former key, or half of its time is over.
    pub(super) fn is_due(&self, now: &Time) -> bool {
        is_due(self.ends.as_ref(), now)
    }

    fn hold(&mut self, own: Option<OwnKubeconfig>) {
        (self.kubeconfig, self.ends) = own.map_or((None, None), |own| (Some(own.text), own.ends));
    }
}

impl OwnGuests<'_> {
    /// A kubeconfig of a node, if it leads to the cluster.
    fn own(&self, node: Ipv4Addr, given: Zeroizing<String>) -> anyhow::Result<Zeroizing<String>> {
        let server = Credentials::parse(&given).ok().and_then(|given| given.address());
        let is_own = server.is_some_and(|server| {
            server.port() == ports::API && (*server.ip() == node || is_of(self.cluster, *server.ip()))
        });
        // The error does not contain the address: its text would reveal which addresses answer.
        ensure!(is_own, "its kubeconfig does not lead to the cluster");
        Ok(given)
    }
}

fleet::delegate! {
    impl Guests for OwnGuests<'_> {
        accepts(node: Ipv4Addr, kubeconfig: &str) -> anyhow::Result<bool> = guests.accepts;
        admit(node: Ipv4Addr, shown: &Fingerprints, lost: &str) -> anyhow::Result<ReplacementGrant> = guests.admit;
        ready(kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> = guests.ready;
    }

    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.guests.deployer_fingerprint()
    }

    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        if let Some(held) = &self.held
            && self.guests.accepts(node, held).await?
        {
            return Ok(held.clone());
        }
        self.own(node, self.guests.kubeconfig(node, shown).await?)
    }

    async fn renew(&self, node: Ipv4Addr, former: &str) -> anyhow::Result<Zeroizing<String>> {
        self.own(node, self.guests.renew(node, former).await?)
    }
}

impl Reconciler<'_> {
    /// The control-plane nodes of a cluster. Without the deployer's key they cannot be called.
    pub(super) fn guests<'c>(&self, cluster: &'c TenantCluster, key: Option<PrivateKey>) -> OwnGuests<'c> {
        OwnGuests { guests: self.places.guests(key), cluster, held: None }
    }

    /// Renews the controller's own kubeconfig and that of users, each once half of its time is over, and asks the cluster's own API.
    /// Needs no vCenter: the nodes are trusted by the CA in the kubeconfig.
    pub(super) async fn access(
        &self,
        cluster: &TenantCluster,
        guests: &OwnGuests<'_>,
    ) -> Result<ClusterAccess, ReconcileError> {
        let mut access = ClusterAccess::default();
        access.hold(self.own_kubeconfig(cluster).await?);
        let is_due = access.is_due(&self.clock.time());
        if let Some(former) = access.kubeconfig.clone().filter(|_| is_due) {
            for node in cluster.deployment().into_iter().flat_map(|deployment| &deployment.record.nodes) {
                match guests.renew(node.address, &former).await {
                    Ok(given) => {
                        self.take(cluster, &mut access, given).await?;
                        break;
                    }
                    Err(error) => log::debug!("renewing the kubeconfig at {}: {error:#}", node.name),
                }
            }
        } else if let Some(own) = &access.kubeconfig {
            // A foreign Secret of that name stays. The status says so after the next run.
            self.renew_handed_over(cluster, own).await?;
        }
        access.api = self.listed(access.kubeconfig.as_deref().map(String::as_str)).await;
        Ok(access)
    }

    /// Stores a kubeconfig that a node gave, and renews that of users.
    pub(super) async fn take(
        &self,
        cluster: &TenantCluster,
        access: &mut ClusterAccess,
        given: Zeroizing<String>,
    ) -> Result<(), ReconcileError> {
        self.hand_over(cluster, &given).await?;
        access.hold(self.own_kubeconfig(cluster).await?);
        Ok(())
    }

    /// The nodes that a cluster's own API lists.
    pub(super) async fn listed(&self, kubeconfig: Option<&str>) -> Observed<Vec<NodeSeen>> {
        let Some(kubeconfig) = kubeconfig else { return Observed::Unknown("there is no kubeconfig".to_owned()) };
        let nodes = match self.places.cluster(kubeconfig) {
            Ok(api) => api.nodes().await,
            Err(error) => Err(error),
        };
        match nodes {
            Ok(nodes) => Observed::Known(nodes),
            Err(error) => Observed::Unknown(format!("{error:#}")),
        }
    }
}

/// A kubeconfig from one of the control-plane nodes, which must show the CA with which the cluster has formed.
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

fleet::delegate! {
    impl Nodes for OwnNodes {
        ready() -> anyhow::Result<()> = nodes.ready;
        cluster() -> anyhow::Result<Uuid> = nodes.cluster;
        publish(status: &str) -> anyhow::Result<()> = nodes.publish;
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

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.of(node)?.request(node, request).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.of(node)?.snapshot(node, to, room).await
    }
}
