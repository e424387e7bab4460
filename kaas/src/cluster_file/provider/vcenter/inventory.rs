//! The objects of a description as they were seen on a vCenter at one moment. Has no connection.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ::vsphere::{Datastore, DatastorePath, Missing};

/// The object at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Object {
    /// No object, or none that the account can see.
    #[default]
    Absent,
    /// An object of this other kind.
    Other(String),
    /// The named object, but the account may not read what VMs need; with the reason.
    Unreadable(String),
    There,
}

/// The object at a datastore's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtDatastore {
    /// No object, or none that the account can see.
    #[default]
    Absent,
    /// A datastore cluster with these datastores.
    Cluster(Vec<String>),
    /// An object of this other kind.
    Other(String),
    There(Datastore),
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostState {
    pub name: String,
    /// Whether vCenter reaches it.
    pub connected: bool,
    pub in_maintenance: bool,
    /// The most processors that a VM there can have. `None` if vCenter does not report it.
    pub processors: Option<u32>,
    /// Its memory, in bytes. `None` if vCenter does not report it.
    pub memory: Option<u64>,
    pub reaches_datastore: bool,
    /// The names of the networks that it lacks.
    pub lacks: Vec<String>,
}

/// The object at a cluster's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtCompute {
    /// No object, or none that the account can see.
    #[default]
    Absent,
    /// An object of this other kind.
    Other(String),
    /// A cluster with these hosts.
    Cluster(Vec<HostState>),
    /// A host without a cluster.
    Host(Vec<HostState>),
    /// A cluster, or a host without one, but the account may not read whether hosts take VMs; with the reason.
    Unreadable(String),
}

impl AtCompute {
    pub fn hosts(&self) -> &[HostState] {
        match self {
            Self::Cluster(hosts) | Self::Host(hosts) => hosts,
            Self::Absent | Self::Other(_) | Self::Unreadable(_) => &[],
        }
    }
}

/// A directory for leases and journals that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingJournal {
    pub directory: DatastorePath,
    /// Whether the topmost directory of its path exists.
    pub has_top: bool,
}

#[derive(Clone, Debug, Default)]
pub struct VcenterInventory {
    /// The full name of the vCenter, as it reports it.
    pub server: String,
    /// The version of its API, such as `8.0.3.0`.
    pub api: String,
    /// The account of the session, as vCenter names it.
    pub user: String,
    /// The objects in the data center. `None` if the data center does not exist.
    pub datacenter: Option<DatacenterInventory>,
}

/// The named objects in the data center.
#[derive(Clone, Debug, Default)]
pub struct DatacenterInventory {
    pub folder: Object,
    /// The other folders, in the order of the file.
    pub other_folders: Vec<Object>,
    pub templates: Object,
    /// The cluster, or the object at its path.
    pub compute: AtCompute,
    /// Whether it is a cluster with DRS turned off. Then vCenter chooses no host for new VMs.
    pub lacks_drs: bool,
    pub pool: Object,
    pub datastore: AtDatastore,
    /// The datastore of leases and journals, if it is another one.
    pub journal: Object,
    /// That datastore, if it is another one and exists.
    pub journal_at: Option<Datastore>,
    /// The directory of leases and journals, if it does not exist yet.
    pub unmade_journal: Option<MissingJournal>,
    /// The networks, in the order of the file.
    pub networks: Vec<Object>,
    /// The names of the existing storage policies. `None` if the file names none, no VM is to be created, or the account may
    /// not view them.
    pub policies: Option<Vec<String>>,
    /// Privileges that the account lacks on existing objects.
    pub missing: Vec<Missing>,
    /// Nodes that have VMs of the deployment.
    pub own: BTreeSet<String>,
    /// Nodes whose names other objects have in the folder.
    pub taken: Vec<String>,
    /// Addresses of the cluster that guests of other VMs have, with the names of those VMs.
    pub holders: Vec<(Ipv4Addr, String)>,
    /// Whether the image is imported.
    pub staged: bool,
}
