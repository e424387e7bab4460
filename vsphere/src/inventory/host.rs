//! Hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its reference.
    pub reference: MoRef,
    /// Its name.
    pub name: String,
    /// Whether vCenter is connected to it.
    pub connected: bool,
    /// Whether it is in maintenance, in which it runs no VMs.
    pub in_maintenance: bool,
    /// Whether it is in quarantine, in which VMs are placed elsewhere if possible.
    pub in_quarantine: bool,
    /// The most virtual processors of a VM on it: one for each thread of the host. `None` if vCenter does not report
    /// it.
    pub processors: Option<u32>,
    /// Its memory in bytes. `None` if vCenter does not report it.
    pub memory: Option<u64>,
    /// Its used memory in bytes. `None` if vCenter does not report it.
    pub memory_used: Option<u64>,
    /// The datastores that it can access.
    pub datastores: Vec<MoRef>,
    /// The networks that it can access.
    pub networks: Vec<MoRef>,
}

impl Host {
    /// Whether VMs can be placed on it now.
    pub fn takes_vms(&self) -> bool {
        self.connected && !self.in_maintenance
    }

    /// The unused memory in bytes. 0 if vCenter does not report it.
    pub fn free_memory(&self) -> u64 {
        self.memory.unwrap_or_default().saturating_sub(self.memory_used.unwrap_or_default())
    }
}

const HOST: &[&str] = &[
    "name",
    "runtime.connectionState",
    "runtime.inMaintenanceMode",
    "runtime.inQuarantineMode",
    "summary.hardware.numCpuThreads",
    "summary.hardware.memorySize",
    "summary.quickStats.overallMemoryUsage",
    "datastore",
    "network",
];

/// The time limit of a connection to a host.
const CONNECTING: Duration = Duration::from_secs(5);
/// The port of hosts for uploads.
const HTTPS: u16 = 443;

impl Client {
    /// The reason why this machine cannot connect to a host of this name, or `None`. An upload uses the host in the
    /// lease (`HttpNfcLeaseDeviceUrl.url`), at port 443. If vCenter and host share an address, it is at the port of the
    /// server.
    pub async fn unreached(&self, host: &str) -> Option<String> {
        let own = self.server().port().unwrap_or(HTTPS);
        let mut reason = String::new();
        for port in BTreeSet::from([own, HTTPS]) {
            let connecting = tokio::time::timeout(CONNECTING, tokio::net::TcpStream::connect((host, port)));
            reason = match connecting.await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => format!("port {port}: {error}"),
                Err(_) => format!("port {port}: no answer within {} s", CONNECTING.as_secs()),
            };
        }
        Some(reason)
    }

    /// Reads hosts.
    ///
    /// # Errors
    /// When one of them does not exist or cannot be read. [`Error::Unreadable`] if the account may not read the
    /// connection state of a host, which requires `System.Read` on it.
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
                processors: seen.parsed("summary.hardware.numCpuThreads"),
                memory: seen.parsed("summary.hardware.memorySize"),
                memory_used: seen
                    .parsed::<u64>("summary.quickStats.overallMemoryUsage")
                    .map(|mebibytes| mebibytes << 20),
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
}
