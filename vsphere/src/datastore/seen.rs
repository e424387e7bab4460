//! Datastores as vCenter shows them.

use crate::client::Client;
use crate::collector::Object;
use crate::error::Result;
use crate::reference::MoRef;

/// A datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datastore {
    /// Its reference.
    pub reference: MoRef,
    /// Its name, unique in its data center.
    pub name: String,
    /// Its type, such as `VMFS`, `NFS` or `vsan`.
    pub kind: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// Its free space in bytes, at the time of vCenter's last update.
    pub free: u64,
    /// Whether a host can access it.
    pub accessible: bool,
    /// Whether several hosts can access it.
    pub shared: bool,
    /// `normal`, or a state of maintenance, in which it takes no VMs.
    pub maintenance: String,
    /// The datastore cluster of the datastore.
    pub pod: Option<MoRef>,
}

impl Datastore {
    /// Whether VMs can be placed on it now.
    pub fn takes_vms(&self) -> bool {
        self.accessible && self.maintenance == "normal"
    }
}

const PATHS: &[&str] = &[
    "parent",
    "summary.accessible",
    "summary.capacity",
    "summary.freeSpace",
    "summary.maintenanceMode",
    "summary.multipleHostAccess",
    "summary.name",
    "summary.type",
];

impl Client {
    /// Reads a datastore.
    pub async fn datastore(&self, datastore: &MoRef) -> Result<Datastore> {
        read(&self.look(datastore, PATHS).await?)
    }

    /// The datastores in a folder, with those in its datastore clusters.
    pub async fn datastores_in(&self, folder: &MoRef) -> Result<Vec<Datastore>> {
        self.list(folder, &["Datastore"], true, PATHS).await?.iter().map(read).collect()
    }
}

fn read(datastore: &Object) -> Result<Datastore> {
    let said = datastore.text("summary.maintenanceMode");
    Ok(Datastore {
        reference: datastore.reference.clone(),
        name: datastore.need("summary.name")?.value().to_owned(),
        kind: datastore.text("summary.type").to_owned(),
        capacity: datastore.parsed("summary.capacity").unwrap_or_default(),
        free: datastore.parsed("summary.freeSpace").unwrap_or_default(),
        accessible: datastore.flag("summary.accessible"),
        shared: datastore.flag("summary.multipleHostAccess"),
        // Datastores without maintenance leave it out.
        maintenance: if said.is_empty() { "normal" } else { said }.to_owned(),
        pod: datastore.reference_at("parent").filter(|parent| parent.kind == "StoragePod"),
    })
}
