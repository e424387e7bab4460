//! The parts of `fleet`'s upgrades for one cluster: the clients of its nodes, the stores of journals and snapshots, and limits.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fleet::control_plane::{DeploymentRecord, Guests};
use fleet::lease::{Snapshots, TakeOver};
use fleet::nodes::Credentials;
use fleet::upgrade::{Asking, Deployment, Given, KubernetesOptions, Notice, Options, Renewed, Target};
use kube::ResourceExt;
use tokio::sync::watch;

use super::super::Reconciler;
use super::super::fleet_run::{PACE, PAUSE_LIMIT};
use super::super::own_guests::issued;
use super::super::place::ProviderSession;
use super::own_nodes::OwnNodes;
use crate::context::ReconcileError;
use crate::objects::TenantCluster;
use crate::reach::{ClusterStore, Swap};

/// The limit for the upgrade of one node to another minor version of Kubernetes.
pub(super) const KUBERNETES: Duration = Duration::from_secs(1800);

/// Only former controllers have worked on a cluster, and their calls have ended.
pub(super) const OVER: TakeOver = TakeOver::FromAnyone;

pub(in crate::reconcilers::tenant_cluster) struct UpgradeContext<'a> {
    opened: &'a ProviderSession,
    /// The record of the control-plane nodes that were made for the cluster.
    pub(in crate::reconcilers::tenant_cluster) kept: &'a DeploymentRecord,
    pub(in crate::reconcilers::tenant_cluster) nodes: Renewed<'a>,
    store: ClusterStore<'a>,
    snapshots: Box<dyn Snapshots>,
}

impl<'a> UpgradeContext<'a> {
    pub(super) fn deployment<'d>(
        &'d self,
        watch: &'d (dyn Fn(&Notice<'_>) + Sync),
        cancelled: watch::Receiver<bool>,
    ) -> Deployment<'d> {
        Deployment {
            hypervisor: &*self.opened.hypervisor,
            nodes: &self.nodes,
            store: &self.store,
            snapshots: &*self.snapshots,
            what: "a TenantCluster",
            watch,
            pace: PACE,
            pause_limit: PAUSE_LIMIT,
            other_cluster: None,
            cancelled,
        }
    }

    /// Checks whether a swap may begin. Read-only.
    ///
    /// # Errors
    /// Why it may not: [`Refusals`], if it was checked.
    pub(super) async fn plans(&self, target: &Target, options: &Options) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_for(target, options, OVER).await.map(drop)
    }

    /// As `plans`, for an upgrade of Kubernetes.
    pub(super) async fn plans_kubernetes(&self, options: &KubernetesOptions) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_kubernetes_over(options, OVER).await.map(drop)
    }

    /// Sets the swap for an upgrade that begins.
    pub(super) fn beginning(self, swap: Swap) -> Self {
        Self { store: self.store.beginning(swap), ..self }
    }
}

impl Reconciler<'_> {
    /// The context of a cluster. `guests` has its deployer's key.
    pub(in crate::reconcilers::tenant_cluster) async fn upgrade_context<'o>(
        &'o self,
        cluster: &'o TenantCluster,
        opened: &'o ProviderSession,
        guests: &'o dyn Guests,
        kept: &'o DeploymentRecord,
    ) -> Result<UpgradeContext<'o>, ReconcileError> {
        let first = match self.kubeconfig(cluster).await? {
            Some(kubeconfig) => self.given(cluster, &kubeconfig, "the Secret of the kubeconfig").ok(),
            None => None,
        };
        let renew = move || -> Asking<'o> {
            Box::pin(async move {
                let kubeconfig = issued(opened, guests, kept).await?;
                self.given(cluster, &kubeconfig, "a control-plane node")
            })
        };
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        Ok(UpgradeContext {
            opened,
            kept,
            nodes: Renewed::new(first, None, renew),
            store: ClusterStore::new(self.objects, &namespace, &name, self.term),
            snapshots: self.places.snapshots(cluster),
        })
    }

    fn given(&self, cluster: &TenantCluster, kubeconfig: &str, whence: &str) -> anyhow::Result<Given> {
        let ends = Credentials::parse(kubeconfig)?.ends().context("its certificate does not say when it ends")?;
        let nodes = Arc::new(OwnNodes::new(self.places.nodes(kubeconfig)?, cluster));
        Ok(Given { nodes, ends, whence: whence.to_owned() })
    }
}
