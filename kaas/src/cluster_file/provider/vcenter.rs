//! A vCenter as a place for a cluster: `[provider.vsphere]`.
//!
//! What stands in the table `table` reads, and judges by itself; whether it is so on the vCenter, `look` asks and `judge`
//! decides, purely. Nothing is made but by `fleet`.

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
use fleet::vcenter::{Clones, Site as Names};
use image::document::{Located, Mistake};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::super::described::{NodeTable, Text};
use super::super::source::Source;
use super::{Provider, Site};

use self::site::VcenterSite;

/// `[provider.vsphere]`. All names but the data center's are paths below it, as vSphere Client shows them; in names `/`, `\` and
/// `%` are written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug)]
pub struct VcenterProvider {
    /// Host name or address of the vCenter, with a port if it is another one than 443.
    server: Located<String>,
    trust: Trust,
    user: Located<String>,
    password: Located<Source>,
    datacenter: Located<String>,
    /// The cluster, or a host without one.
    cluster: Located<String>,
    /// A resource pool of it, if not its topmost one.
    pool: Option<Located<String>>,
    /// The folder that VMs are put into.
    folder: Located<String>,
    /// Folders that VMs of the deployment may be in as well, because they were adopted there.
    other_folders: Vec<Located<String>>,
    /// The folder of image templates, if not that of the VMs.
    templates: Option<Located<String>>,
    datastore: Located<String>,
    /// In the order of the image's.
    networks: Vec<Located<String>>,
    clones: Clones,
    /// Whether control nodes are kept on different hosts.
    anti_affinity: Located<bool>,
    restart: Option<Located<RestartPriority>>,
    /// The storage policy of new VMs and of their disks.
    storage_policy: Option<Located<String>>,
    /// The key of the extension that vSphere Client names as the one whose the VMs are.
    managed_by: Option<String>,
    /// Where holds and journals are kept.
    journal: Option<Located<DatastorePath>>,
    /// The deployment whose the VMs are, if not the one that vCenter and journal come to.
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

    /// The resource pool's path. A cluster's topmost one is called `Resources`, and stands for it where no other is named.
    fn pool_path(&self) -> String {
        let cluster = &self.cluster.value;
        self.pool.as_ref().map_or_else(|| cluster.clone(), |pool| format!("{cluster}/Resources/{}", pool.value))
    }

    /// Whether settings of the cluster are made: rules and restart priorities.
    fn changes_cluster(&self) -> bool {
        self.anti_affinity.value || self.restart.is_some()
    }

    /// Where holds and journals of a cluster are kept.
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
        // All that can be told without vCenter is told when the table is read.
        Vec::new()
    }

    fn networks(&self) -> Vec<String> {
        self.networks.iter().map(|network| network.value.clone()).collect()
    }

    fn open(&self, cluster: &str, snapshots: &Path, runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>> {
        Ok(Box::new(VcenterSite::open(self, cluster, snapshots, runtime)?))
    }
}

/// The name of a path's object, as datastore paths write it: without the inventory's way to write some characters.
fn name_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}
