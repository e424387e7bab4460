//! The provider of a cluster's VMs, as the file names it: one table of `[provider]`. Knows nothing of commands.

mod vcenter;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::deployer::PrivateKey;
use document::{Mistake, Table};
use fleet::control_plane::DesiredState;
use fleet::hypervisor::{Hypervisor, Placement};
use fleet::lease::{Snapshots, Store, TakeOver};
use fleet::nodes::Deployer;
use fleet::vcenter::probe::Report;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::described::{FileContext, NodeTable, Text};

use self::vcenter::VcenterProvider;

/// A provider as it is described. No method but `open` contacts it.
pub trait Provider {
    fn words(&self) -> String;

    fn mistakes(&self, text: &Text, nodes: &[NodeTable]) -> Vec<Mistake>;

    /// The networks of the VMs, in the order of the image's adapters.
    fn networks(&self) -> Vec<String>;

    /// The placement of the VMs.
    fn placement(&self) -> Placement {
        Placement::default()
    }

    /// Contacts the provider for a cluster of this name. Its connections live in the runtime. `snapshots` is a directory of
    /// this machine for etcd's snapshots, if the provider has no place for them.
    fn open(&self, cluster: &str, snapshots: &Path, runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>>;
}

/// A provider that answers.
pub trait Site {
    fn words(&self) -> String;

    /// Checks whether the cluster can be created here. Changes nothing. `written` is the text of the file, for mistakes.
    fn check(&self, wanted: &DesiredState, written: FileContext<'_>) -> anyhow::Result<CheckReport>;

    /// The cluster's place. `None` if it does not exist.
    fn find(&self) -> anyhow::Result<Option<ClusterBackend>>;

    /// The place, created if it is missing. If a run is killed while it creates the place, the next run creates it again.
    fn make(&self, wanted: &DesiredState, key: &PrivateKey, say: &dyn Fn(&str)) -> anyhow::Result<ClusterBackend>;

    /// Checks that a cluster may be destroyed: no other cluster depends on its place. The error names these.
    fn may_destroy(&self) -> anyhow::Result<()>;

    /// The part of the journal that is removed with the cluster, as text.
    fn journal(&self) -> String;

    /// The paths of the existing templates that were imported for the cluster, and of incomplete ones, among the site's VMs.
    /// They remain when the cluster is removed.
    fn templates(&self) -> anyhow::Result<Vec<String>>;

    /// How to reach the cluster from this machine if its own addresses are not reachable, as text.
    fn access_hints(&self) -> anyhow::Result<Vec<String>>;

    /// Findings that a node shows on its console, and where the console's log is.
    fn complaints(&self, node: &str) -> Vec<String>;

    /// The OVA at a path, or in a directory, for VMs of this site.
    fn ova(&self, path: &Path) -> anyhow::Result<PathBuf>;

    /// How to upgrade the workers of this site to a minor version of Kubernetes. `None` if it has none.
    fn workers_hint(&self, minor: &str) -> anyhow::Result<Option<String>>;

    /// Ends what is open, such as a session.
    fn close(&self);
}

#[derive(Debug, Default)]
pub struct CheckReport {
    /// Why the cluster cannot be created there.
    pub mistakes: Vec<Mistake>,
    /// Notes that do not block the cluster.
    pub warnings: Vec<String>,
    /// Whether a part of the cluster exists already.
    pub exists: bool,
    /// The facts that the check confirmed, as text.
    pub found: Vec<String>,
    /// The objects to create in addition to VMs, as text.
    pub makes: Vec<String>,
}

/// The place of a cluster's VMs.
pub struct ClusterBackend {
    pub hypervisor: Box<dyn Hypervisor>,
    /// The store of the lease and the journal.
    pub store: Box<dyn Store>,
    /// The store of etcd's snapshots.
    pub snapshots: Box<dyn Snapshots>,
    /// The network namespace from which the VMs are reached. `None` for that of this process.
    pub network: Option<PathBuf>,
    /// The administrator's kubeconfig that the place itself keeps and renews, if it does. It fails if the kubeconfig is about
    /// to expire and no node issues a new one.
    pub kubeconfig: Option<Arc<dyn Fn() -> anyhow::Result<PathBuf> + Send + Sync>>,
    /// Removes the place once it has no VM and no disk. The caller holds the lease. A failed removal can be repeated.
    pub empties: Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>,
}

impl ClusterBackend {
    /// A client for the VMs with this deployer's key.
    pub fn deployer(&self, key: PrivateKey) -> anyhow::Result<Deployer> {
        match &self.network {
            Some(network) => Deployer::from_inside(key, network.clone()),
            None => Ok(Deployer::new(key)),
        }
    }
}

/// A provider that a program adds to `[provider.vsphere]`. `kaas-dev` adds labs.
pub struct AddedProvider {
    /// The name of its table in `[provider]`. Commands on a deployment have an option of this name, for one of its places.
    pub name: &'static str,
    /// The help of that option.
    pub about: &'static str,
    /// Reads its table.
    pub read: fn(&Table<'_, '_>) -> Option<Box<dyn Provider>>,
    /// The JSON Schema of its table.
    pub schema: fn() -> Value,
    /// One of its places, by its name.
    pub site: fn(&str) -> Box<dyn Site>,
}

static ADDED: OnceLock<AddedProvider> = OnceLock::new();

/// Adds a provider. A program calls this once, before it parses its command line.
pub fn add_provider(provider: AddedProvider) {
    let _ = ADDED.set(provider);
}

/// The provider that this program has added.
pub fn added_provider() -> Option<&'static AddedProvider> {
    ADDED.get()
}

/// The provider of the VMs, as the file describes it.
pub enum DescribedProvider {
    Added(Box<dyn Provider>),
    Vcenter(Box<VcenterProvider>),
}

impl DescribedProvider {
    /// Reads `[provider]` of the document `path`: exactly one table, with the provider's name.
    pub(super) fn read(path: &Path, table: &Table<'_, '_>) -> Option<Self> {
        let added = added_provider().map(|added| (added, table.at(added.name).is_some()));
        match (added, table.at("vsphere")) {
            (Some((added, true)), None) => table.table(added.name, added.read).map(Self::Added),
            (Some((added, true)), Some(_)) => {
                let name = added.name;
                table.mistake_here(format!(
                    "names two that run VMs: give one of [provider.vsphere] and [provider.{name}]"
                ));
                None
            }
            (_, Some(_)) => {
                table.table("vsphere", |vsphere| VcenterProvider::read(path, vsphere)).map(Box::new).map(Self::Vcenter)
            }
            (added, None) => {
                let or = added.map(|(added, _)| format!(" or [provider.{}]", added.name)).unwrap_or_default();
                table.mistake_here(format!("names nothing that runs VMs: give a table [provider.vsphere]{or}"));
                None
            }
        }
    }

    /// Runs the probe of the vCenter's folder. Fails if the file names no vCenter.
    pub fn probe(&self, cluster: &str, ova: &Path, guest: Duration, over: TakeOver) -> anyhow::Result<Report> {
        match self {
            Self::Added(_) => anyhow::bail!("the file names no vCenter: give one with [provider.vsphere]"),
            Self::Vcenter(vcenter) => vcenter.probe(cluster, ova, guest, over),
        }
    }

    fn provider(&self) -> &(dyn Provider + 'static) {
        match self {
            Self::Added(added) => &**added,
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
