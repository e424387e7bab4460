//! What runs a cluster's VMs, as its file names it: one table of `[provider]`. Knows nothing of commands.

mod lab;
mod vcenter;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::deployer::PrivateKey;
use fleet::control_plane::DesiredState;
use fleet::hypervisor::{Hypervisor, Placement};
use fleet::lease::{Snapshots, Store, TakeOver};
use fleet::nodes::Deployer;
use fleet::vcenter::probe::Report;
use image::document::{Mistake, Table};
use tokio::runtime::Runtime;

use super::described::{FileContext, NodeTable, Text};

use self::lab::LabProvider;
pub use self::lab::LabSite;
use self::vcenter::VcenterProvider;

/// What runs VMs, as it is described: nothing is asked of it.
pub trait Provider {
    fn words(&self) -> String;

    fn mistakes(&self, text: &Text, nodes: &[NodeTable]) -> Vec<Mistake>;

    /// The networks that VMs are on, in the order of the image's.
    fn networks(&self) -> Vec<String>;

    /// Where VMs are put.
    fn placement(&self) -> Placement {
        Placement::default()
    }

    /// Reaches it, for a cluster of this name. Its connections live in the runtime. `snapshots` is a directory of this
    /// machine where those of etcd are kept, if it has no place for them itself.
    ///
    /// # Errors
    /// When it cannot be reached, or is not as it is described.
    fn open(&self, cluster: &str, snapshots: &Path, runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>>;
}

/// What runs VMs, and answers.
pub trait Site {
    fn words(&self) -> String;

    /// Looks whether the cluster can be made here; makes nothing. `written` is what the file says of it.
    fn check(&self, wanted: &DesiredState, written: FileContext<'_>) -> anyhow::Result<CheckReport>;

    /// The cluster's place; none if it is not there.
    fn find(&self) -> anyhow::Result<Option<ClusterBackend>>;

    /// The place, made if it is not there. Killed in the middle, it is made anew by the next call.
    fn make(&self, wanted: &DesiredState, key: &PrivateKey, say: &dyn Fn(&str)) -> anyhow::Result<ClusterBackend>;

    /// Whether a cluster may be destroyed: nothing else stands on its place.
    ///
    /// # Errors
    /// What stands on it.
    fn may_destroy(&self) -> anyhow::Result<()>;

    /// What of the journal goes with the cluster, in words for people.
    fn journal(&self) -> String;

    /// Templates, and halves of one, that were laid ready for the cluster and are there: they stay when it goes. By their paths among the
    /// site's VMs.
    fn templates(&self) -> anyhow::Result<Vec<String>>;

    /// How the cluster is reached from here where its own addresses do not lead there, in words for people.
    fn access_hints(&self) -> anyhow::Result<Vec<String>>;

    /// What a node says on its console that must be corrected, and where that is kept.
    fn complaints(&self, node: &str) -> Vec<String>;

    /// The OVA that a path means for this site's VMs.
    ///
    /// # Errors
    /// When there is none, or more than one.
    fn ova(&self, path: &Path) -> anyhow::Result<PathBuf>;

    /// The name of the tenant that stands here; none if it is a control cluster.
    fn tenant(&self) -> anyhow::Result<Option<String>>;

    /// Gives back what is held open, such as a session.
    fn close(&self);
}

#[derive(Debug, Default)]
pub struct CheckReport {
    /// Why the cluster cannot be made there.
    pub mistakes: Vec<Mistake>,
    /// What is worth knowing, but stops nothing.
    pub warnings: Vec<String>,
    /// Whether there is something of the cluster already.
    pub exists: bool,
    /// What was found in order, for people.
    pub found: Vec<String>,
    /// What is made besides VMs, for people.
    pub makes: Vec<String>,
}

/// Where a cluster's VMs are.
pub struct ClusterBackend {
    pub hypervisor: Box<dyn Hypervisor>,
    /// Where it is kept who may change them, and what was begun.
    pub store: Box<dyn Store>,
    /// Where snapshots of etcd are kept.
    pub snapshots: Box<dyn Snapshots>,
    /// The network namespace that they are reached from; none for this process's own.
    pub network: Option<PathBuf>,
    /// The administrator's kubeconfig that the place itself keeps and renews, if it keeps one. It fails when it is about to end
    /// and no node gives a new one.
    pub kubeconfig: Option<Arc<dyn Fn() -> anyhow::Result<PathBuf> + Send + Sync>>,
    /// Removes the place, once no VM and no disk is in it, by whoever holds the deployment. What cannot be removed can be tried
    /// again.
    pub empties: Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>,
}

impl ClusterBackend {
    /// Whoever has this key, as he reaches the VMs.
    pub fn deployer(&self, key: PrivateKey) -> anyhow::Result<Deployer> {
        match &self.network {
            Some(network) => Deployer::from_inside(key, network.clone()),
            None => Ok(Deployer::new(key)),
        }
    }
}

/// What runs the VMs, as the file describes it.
#[derive(Clone, Debug)]
pub enum DescribedProvider {
    /// A lab of this machine.
    Lab(LabProvider),
    Vcenter(Box<VcenterProvider>),
}

impl DescribedProvider {
    /// Reads `[provider]` of the document `path`: one table, named as what runs the VMs.
    pub(super) fn read(path: &Path, table: &Table<'_, '_>) -> Option<Self> {
        match (table.at("lab"), table.at("vsphere")) {
            (Some(_), None) => table.table("lab", |lab| LabProvider::read(lab)).map(Self::Lab),
            (None, Some(_)) => {
                table.table("vsphere", |vsphere| VcenterProvider::read(path, vsphere)).map(Box::new).map(Self::Vcenter)
            }
            (None, None) => {
                table.mistake_here("names nothing that runs VMs: give a table [provider.vsphere] or [provider.lab]");
                None
            }
            (Some(_), Some(_)) => {
                table.mistake_here("names two that run VMs: give one of [provider.vsphere] and [provider.lab]");
                None
            }
        }
    }

    /// Runs the probe of the vCenter's folder.
    ///
    /// # Errors
    /// The file names no vCenter; and as `fleet::vcenter::probe::run`.
    pub fn probe(&self, cluster: &str, ova: &Path, guest: Duration, over: TakeOver) -> anyhow::Result<Report> {
        match self {
            Self::Lab(_) => anyhow::bail!("the file names no vCenter: give one with [provider.vsphere]"),
            Self::Vcenter(vcenter) => vcenter.probe(cluster, ova, guest, over),
        }
    }

    fn provider(&self) -> &(dyn Provider + 'static) {
        match self {
            Self::Lab(lab) => lab,
            Self::Vcenter(vcenter) => &**vcenter,
        }
    }
}

impl std::ops::Deref for DescribedProvider {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        self.provider()
    }
}
