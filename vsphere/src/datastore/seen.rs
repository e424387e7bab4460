//! Datastores as vCenter shows them.

use crate::client::Client;
use crate::collector::Object;
use crate::error::Result;
use crate::reference::MoRef;

/// A datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datastore {
    /// What names it.
    pub reference: MoRef,
    /// Its name, unique in its data center.
    pub name: String,
    /// Its type, such as `VMFS`, `NFS` or `vsan`.
    pub kind: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// What is free of it, in bytes, as of vCenter's last look.
    pub free: u64,
    /// Whether any host reaches it.
    pub accessible: bool,
    /// Whether several hosts reach it.
    pub shared: bool,
    /// `normal`, or that it is in maintenance or on its way there: VMs are put elsewhere then.
    pub maintenance: String,
    /// The datastore cluster that it is in.
    pub pod: Option<MoRef>,
}

impl Datastore {
    /// Whether VMs can be put onto it now.
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
    /// A datastore.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn datastore(&self, datastore: &MoRef) -> Result<Datastore> {
        read(&self.look(datastore, PATHS).await?)
    }

    /// The datastores in a folder, those in its datastore clusters among them.
    ///
    /// # Errors
    /// When they cannot be read.
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
        // Left out by what knows no maintenance.
        maintenance: if said.is_empty() { "normal" } else { said }.to_owned(),
        pod: datastore.reference_at("parent").filter(|parent| parent.kind == "StoragePod"),
    })
}
