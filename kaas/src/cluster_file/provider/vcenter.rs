//! A vCenter as a place for a cluster: `[provider.vsphere]`.
//!
//! `table` reads the table and judges it alone. `look` reads the vCenter, and `judge` compares both, purely. Only `fleet`
//! changes the vCenter.

mod inventory;
mod judge;
mod look;
mod probe;
mod requirements;
mod site;
mod space_demand;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::rc::Rc;

use ::vsphere::{DatastorePath, RestartPriority, Settings, Trust};
use document::{Located, Mistake};
use fleet::vcenter::{Clones, Site as Names};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::super::described::{NodeTable, Text};
use super::super::source::Source;
use super::{Provider, Site};

use self::site::VcenterSite;

/// `[provider.vsphere]`. All names except the data center's are paths below it, as vSphere Client shows them. In names, `/`,
/// `\` and `%` are written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug)]
pub struct VcenterProvider {
    /// Host name or address of the vCenter, with a port if it is not 443.
    server: Located<String>,
    trust: Trust,
    user: Located<String>,
    password: Located<Source>,
    datacenter: Located<String>,
    /// The cluster, or a host without one.
    cluster: Located<String>,
    /// A resource pool of the cluster. `None` for its root resource pool.
    pool: Option<Located<String>>,
    /// The folder of the VMs.
    folder: Located<String>,
    /// Folders that VMs of the deployment may also be in, because they were adopted there.
    other_folders: Vec<Located<String>>,
    /// The folder of image templates. `None` for that of the VMs.
    templates: Option<Located<String>>,
    datastore: Located<String>,
    /// In the order of the image's adapters.
    networks: Vec<Located<String>>,
    clones: Clones,
    /// Whether control-plane nodes run on different hosts.
    anti_affinity: Located<bool>,
    restart: Option<Located<RestartPriority>>,
    /// The storage policy of new VMs and of their disks.
    storage_policy: Option<Located<String>>,
    /// The key of the extension that vSphere Client shows as the manager of the VMs.
    managed_by: Option<String>,
    /// The directory of leases and journals.
    journal: Option<Located<DatastorePath>>,
    /// The deployment of the VMs. `None` for the one that follows from vCenter, journal and folder.
    deployment: Option<Uuid>,
    settings: Settings,
}

impl VcenterProvider {
    /// The objects by their names.
    fn names(&self) -> Names {
        let values = |all: &[Located<String>]| all.iter().map(|one| one.value.clone()).collect();
        Names {
            datacenter: self.datacenter.value.clone(),
            folder: self.folder.value.clone(),
            other_folders: values(&self.other_folders),
            templates: self.templates.as_ref().map(|folder| folder.value.clone()),
            resource_pool: self.pool_path(),
            datastore: self.datastore.value.clone(),
            networks: values(&self.networks),
            clones: self.clones,
            different_hosts: self.anti_affinity.value,
            restart: self.restart.as_ref().map(|restart| restart.value),
            storage_policy: self.storage_policy.as_ref().map(|policy| policy.value.clone()),
            managed_by: self.managed_by.clone(),
        }
    }

    /// The path of the resource pool. The root pool of a cluster is called `Resources`. The cluster's own path means that pool.
    fn pool_path(&self) -> String {
        let cluster = &self.cluster.value;
        self.pool.as_ref().map_or_else(|| cluster.clone(), |pool| format!("{cluster}/Resources/{}", pool.value))
    }

    /// Whether settings of the cluster are created: rules and restart priorities.
    fn changes_cluster(&self) -> bool {
        self.anti_affinity.value || self.restart.is_some()
    }

    /// The directory of a cluster's leases and journals.
    fn journal_of(&self, cluster: &str) -> DatastorePath {
        let beside_vms = || DatastorePath::new(name_of(&self.datastore.value), format!("kaas/{cluster}"));
        self.journal.as_ref().map_or_else(beside_vms, |journal| journal.value.clone())
    }
}

impl Provider for VcenterProvider {
    fn words(&self) -> String {
        format!("the folder {} of {} on {}", self.folder.value, self.datacenter.value, self.server.value)
    }

    fn mistakes(&self, _text: &Text, _nodes: &[NodeTable]) -> Vec<Mistake> {
        // Reading the table has reported all mistakes that need no vCenter.
        Vec::new()
    }

    fn networks(&self) -> Vec<String> {
        self.networks.iter().map(|network| network.value.clone()).collect()
    }

    fn open(&self, cluster: &str, snapshots: &Path, runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>> {
        Ok(Box::new(VcenterSite::open(self, cluster, snapshots, runtime)?))
    }
}

/// The name of a path's object, with the inventory's escapes decoded, as datastore paths need it.
fn name_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}
