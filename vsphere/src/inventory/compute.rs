//! Clusters, hosts and resource pools.

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;

/// A cluster, or a host that is in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compute {
    /// What names it: a `ClusterComputeResource`, or a `ComputeResource`.
    pub reference: MoRef,
    /// Its name.
    pub name: String,
    /// Its topmost resource pool.
    pub pool: Option<MoRef>,
    /// Its hosts.
    pub hosts: Vec<MoRef>,
}

impl Compute {
    /// Whether it is a cluster: only those have rules and restart priorities.
    pub fn is_cluster(&self) -> bool {
        self.reference.kind == "ClusterComputeResource"
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What names it.
    pub reference: MoRef,
    /// Its name.
    pub name: String,
    /// Whether vCenter reaches it.
    pub connected: bool,
    /// Whether it is in maintenance: it runs no VMs then.
    pub in_maintenance: bool,
    /// Whether it is in quarantine: VMs are put elsewhere if they can.
    pub in_quarantine: bool,
    /// Datastores that it reaches.
    pub datastores: Vec<MoRef>,
    /// Networks that it has.
    pub networks: Vec<MoRef>,
}

impl Host {
    /// Whether VMs can be put onto it now.
    pub fn takes_vms(&self) -> bool {
        self.connected && !self.in_maintenance
    }
}

/// A resource pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What names it.
    pub reference: MoRef,
    /// Its name; the topmost one of a cluster is called `Resources`.
    pub name: String,
    /// The cluster or host whose it is.
    pub owner: Option<MoRef>,
    /// The pool that it is in.
    pub parent: Option<MoRef>,
}

const HOST: &[&str] = &[
    "name",
    "runtime.connectionState",
    "runtime.inMaintenanceMode",
    "runtime.inQuarantineMode",
    "datastore",
    "network",
];

impl Client {
    /// The clusters and hosts without a cluster in a folder.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn computes_in(&self, folder: &MoRef) -> Result<Vec<Compute>> {
        let found = self.list(folder, &["ComputeResource"], true, &["name", "resourcePool", "host"]).await?;
        let compute = |seen: &Object| {
            Ok(Compute {
                reference: seen.reference.clone(),
                name: seen.need("name")?.value().to_owned(),
                pool: seen.reference_at("resourcePool"),
                hosts: seen.references_at("host"),
            })
        };
        found.iter().map(compute).collect()
    }

    /// These hosts.
    ///
    /// # Errors
    /// When one of them is gone or cannot be read; [`Error::Unreadable`] where the account may not see whether a host is connected, which
    /// takes `System.Read` on it.
    pub async fn hosts(&self, hosts: &[MoRef]) -> Result<Vec<Host>> {
        let host = |seen: &Object| {
            let name = seen.need_readable("name", &format!("the host {}", seen.reference))?.value().to_owned();
            let state = seen.need_readable("runtime.connectionState", &format!("the host {name}"))?;
            Ok(Host {
                reference: seen.reference.clone(),
                connected: state.value() == "connected",
                name,
                in_maintenance: seen.flag("runtime.inMaintenanceMode"),
                in_quarantine: seen.flag("runtime.inQuarantineMode"),
                datastores: seen.references_at("datastore"),
                networks: seen.references_at("network"),
            })
        };
        let found = self.look_at(hosts, HOST).await?;
        if let Some(unseen) = hosts.iter().find(|host| found.iter().all(|seen| seen.reference != **host)) {
            return Err(Error::unreadable("looking at hosts", format!("the host {unseen}")));
        }
        found.iter().map(host).collect()
    }

    /// The resource pools in a folder of hosts, or in a cluster.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn pools_in(&self, container: &MoRef) -> Result<Vec<Pool>> {
        let found = self.list(container, &["ResourcePool"], true, &["name", "owner", "parent"]).await?;
        let pool = |seen: &Object| {
            Ok(Pool {
                reference: seen.reference.clone(),
                name: seen.need("name")?.value().to_owned(),
                owner: seen.reference_at("owner"),
                parent: seen.reference_at("parent").filter(|parent| parent.kind == "ResourcePool"),
            })
        };
        found.iter().map(pool).collect()
    }
}
