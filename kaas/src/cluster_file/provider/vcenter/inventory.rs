//! What a vCenter was seen to have of what a description names, at one moment. Holds no connection.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ::vsphere::{Datastore, DatastorePath, Missing};

/// What is at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Object {
    /// Nothing, or nothing that the account can see.
    #[default]
    Absent,
    /// Something else, of this kind.
    Other(String),
    /// What is meant, of which the account is not shown what VMs need; and why.
    Unreadable(String),
    There,
}

/// What is at a datastore's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtDatastore {
    /// Nothing, or nothing that the account can see.
    #[default]
    Absent,
    /// A datastore cluster with these datastores.
    Cluster(Vec<String>),
    /// Something else, of this kind.
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
    /// How many processors a VM there can have at most; none where vCenter does not say.
    pub processors: Option<u32>,
    /// Its memory, in bytes; none where vCenter does not say.
    pub memory: Option<u64>,
    pub reaches_datastore: bool,
    /// Which networks it lacks, by name.
    pub lacks: Vec<String>,
}

/// What is at a cluster's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtCompute {
    /// Nothing, or nothing that the account can see.
    #[default]
    Absent,
    /// Something else, of this kind.
    Other(String),
    /// A cluster with these hosts.
    Cluster(Vec<HostState>),
    /// A host without a cluster.
    Host(Vec<HostState>),
    /// A cluster, or a host without one, of whose hosts the account is not shown whether they take VMs; and why.
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

/// A directory for holds and journals that is yet to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingJournal {
    pub directory: DatastorePath,
    /// Whether the topmost directory on the way to it is there.
    pub has_top: bool,
}

#[derive(Clone, Debug, Default)]
pub struct VcenterInventory {
    /// What it says it is.
    pub server: String,
    /// The version of its API, such as `8.0.3.0`.
    pub api: String,
    /// Who has logged in, as it names the account.
    pub user: String,
    /// What is in the data center; none if there is no such one.
    pub datacenter: Option<DatacenterInventory>,
}

/// What is in the data center of what is named.
#[derive(Clone, Debug, Default)]
pub struct DatacenterInventory {
    /// The folder that VMs are put into.
    pub folder: Object,
    /// The further ones, in the order of the file.
    pub other_folders: Vec<Object>,
    pub templates: Object,
    /// The cluster; or what is there instead.
    pub compute: AtCompute,
    /// Whether it is a cluster with DRS turned off, in which vCenter chooses no host for what is to be made.
    pub lacks_drs: bool,
    pub pool: Object,
    pub datastore: AtDatastore,
    /// Whether the datastore of holds and journals is there, if it is another one.
    pub journal: Object,
    /// That datastore, if it is another one and there.
    pub journal_at: Option<Datastore>,
    /// The directory of holds and journals, if it is not there yet.
    pub unmade_journal: Option<MissingJournal>,
    /// The networks, in the order of the file.
    pub networks: Vec<Object>,
    /// The names of the storage policies that there are; none if no one is named, no VM is to be made, or the account may not view them.
    pub policies: Option<Vec<String>>,
    /// Privileges that the account lacks on what is there.
    pub missing: Vec<Missing>,
    /// Nodes that have VMs of the deployment.
    pub own: BTreeSet<String>,
    /// Nodes whose names others have in the folder.
    pub taken: Vec<String>,
    /// Addresses of the cluster that guests of others have, with the names of their VMs.
    pub holders: Vec<(Ipv4Addr, String)>,
    /// Whether the image lies ready.
    pub staged: bool,
}
