//! What the nodes and the VMs of one cluster are worked on with by `fleet`'s upgrades: how nodes are asked, where journals and snapshots
//! are kept, and how long is waited. Also what adoption asks of the nodes: in which VMs they run, and that swaps which no journal leads to the
//! end of are ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use contract::node::Node;
use contract::swap::{Refused, Stage};
use fleet::authority::{Snapshots, TakeOver};
use fleet::deploy::{Guests, Kept};
use fleet::hypervisor::{PowerState, Vm};
use fleet::node::Credentials;
use fleet::upgrade::{Asked, Asking, Deployment, Given, KubernetesOptions, Nodes, Notice, Options, Renewed, Target};
use kube::ResourceExt;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::super::Work;
use super::super::place::Opened;
use super::super::runner::{PACE, PAUSE_LIMIT};
use super::own_nodes::OwnNodes;
use crate::context::Trouble;
use crate::decisions::is_lost;
use crate::objects::TenantCluster;
use crate::reach::{ClusterStore, Swap};

/// How long one node may take to go to another minor of Kubernetes.
pub(super) const KUBERNETES: Duration = Duration::from_secs(1800);

/// Nobody else works on a cluster but controllers before this one, of which nothing more is begun.
pub(super) const OVER: TakeOver = TakeOver::FromAnyone;

/// What the nodes and the VMs of one cluster are worked on with.
pub(in crate::reconcilers::tenant_cluster) struct Operator<'a> {
    opened: &'a Opened,
    /// The control nodes that were made for the cluster.
    kept: &'a Kept,
    nodes: Renewed<'a>,
    store: ClusterStore<'a>,
    snapshots: Box<dyn Snapshots>,
}

impl<'a> Operator<'a> {
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

    /// Whether a swap may begin; changes nothing.
    ///
    /// # Errors
    /// Why it may not: [`Refusals`], if it was judged.
    pub(super) async fn plans(&self, target: &Target, options: &Options) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_for(target, options, OVER).await.map(drop)
    }

    /// The same of a minor of Kubernetes.
    pub(super) async fn plans_kubernetes(&self, options: &KubernetesOptions) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_kubernetes_over(options, OVER).await.map(drop)
    }

    /// What each control node says of itself, once it says that it runs in the VM that is kept of it. One that has no VM which holds a data
    /// disk is lost, and stays as it is noted: it is not waited for, and may not answer from elsewhere.
    ///
    /// # Errors
    /// Which one does not say so, or does not answer; or the cluster's API lists control nodes that were not made for it.
    pub(in crate::reconcilers::tenant_cluster) async fn proved(&self, vms: &[Vm]) -> anyhow::Result<Vec<Node>> {
        self.nodes.control_nodes().await?;
        let mut said = Vec::new();
        for node in &self.kept.nodes {
            let name = &node.name;
            let told = self.nodes.facts(node.address).await;
            if is_lost(node, vms) {
                let is_silent = told.is_err();
                anyhow::ensure!(
                    is_silent,
                    "{name} answers, and no VM that carries the cluster's stamp holds its data disk"
                );
                log::warn!("{name} has no VM that holds a data disk: it is not adopted");
                continue;
            }
            let told = told.with_context(|| format!("asking {name}"))?;
            anyhow::ensure!(
                told.node == *name && told.holder == node.vm,
                "{name} does not say that it runs in the VM that holds its data disk"
            );
            let is_final = told.swap.as_ref().is_none_or(|swap| swap.stage != Stage::Taken);
            anyhow::ensure!(
                is_final || told.good.is_some(),
                "{name} runs in a new VM that is not final, and is not found good: mend what it says, and it becomes final with the others"
            );
            said.push(told);
        }
        Ok(said)
    }

    /// What each control node says of itself that is not lost, or why it does not.
    pub(in crate::reconcilers::tenant_cluster) async fn told(&self, vms: &[Vm]) -> Vec<anyhow::Result<Node>> {
        let mut all = Vec::new();
        for node in self.kept.nodes.iter().filter(|node| !is_lost(node, vms)) {
            let told = self.nodes.facts(node.address).await.with_context(|| format!("asking {}", node.name));
            all.push(told.and_then(|told| {
                anyhow::ensure!(told.node == node.name, "another node answers in the place of {}", node.name);
                Ok(told)
            }));
        }
        all
    }

    /// Ends the swaps that are open on these nodes, of which no journal is believed any more: a node that runs in its new VM stays there for
    /// good, and one that was to leave its VM stays in that. While one is open a node takes part in no other one.
    ///
    /// # Errors
    /// Which one is not ended, and why. Others may be.
    pub(in crate::reconcilers::tenant_cluster) async fn ends_swaps(&self, said: &[Node]) -> anyhow::Result<()> {
        for node in said {
            let name = &node.node;
            let Some(swap) = node.swap.as_ref().filter(|swap| swap.stage != Stage::Failed) else { continue };
            let address = self.kept.node(name).with_context(|| format!("there is no node {name}"))?.address;
            // What changes something goes by what is at hand.
            Nodes::ready(&self.nodes).await?;
            let asked = match swap.stage {
                Stage::Taken => self.nodes.commit(address, swap.id).await,
                _ => self.nodes.cancel_swap(address, swap.id).await,
            };
            match asked.with_context(|| format!("asking {name} to end its swap"))? {
                Asked::Done => {}
                Asked::Begun => anyhow::bail!("{name} is ending its swap"),
                Asked::Refused(Refused { code, reason }) => {
                    anyhow::bail!("{name} refuses to end its swap: {reason} ({code})")
                }
                Asked::Unknown => anyhow::bail!("{name} has a swap open, and its image ends none when it is asked"),
            }
        }
        Ok(())
    }

    /// This one, whose store begins this swap where one is begun.
    pub(super) fn beginning(self, swap: Swap) -> Self {
        Self { store: self.store.beginning(swap), ..self }
    }
}

impl Work<'_> {
    /// What a cluster's nodes and VMs are worked on with. `guests` knows its deployer's key.
    pub(in crate::reconcilers::tenant_cluster) async fn operator<'o>(
        &'o self,
        cluster: &'o TenantCluster,
        opened: &'o Opened,
        guests: &'o dyn Guests,
        kept: &'o Kept,
    ) -> Result<Operator<'o>, Trouble> {
        let first = match self.kubeconfig(cluster).await? {
            Some(kubeconfig) => self.given(cluster, &kubeconfig, "the Secret of the kubeconfig").ok(),
            None => None,
        };
        let renew = move || -> Asking<'o> {
            Box::pin(async move {
                let kubeconfig = issued(opened, guests, kept).await?;
                self.given(cluster, &kubeconfig, "a control node")
            })
        };
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        Ok(Operator {
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

/// A kubeconfig that one of the control nodes gives its deployer: one that shows the authority with which the cluster has formed.
///
/// # Errors
/// When none gives one.
pub(in crate::reconcilers::tenant_cluster) async fn issued(
    opened: &Opened,
    guests: &dyn Guests,
    kept: &Kept,
) -> anyhow::Result<Zeroizing<String>> {
    let vms = opened.hypervisor.vms().await?;
    let mut last = anyhow::anyhow!("no VM of a control node is on");
    for node in &kept.nodes {
        let is_its = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
        for vm in vms.iter().filter(is_its).filter(|vm| vm.power == PowerState::On) {
            let given = async {
                let shown = opened.hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
                let known = kept.authority.context("nothing says which authority is the cluster's")?;
                anyhow::ensure!(shown.authority == known, "it shows the authority {}, not {known}", shown.authority);
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
