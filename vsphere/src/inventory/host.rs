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
    /// How many virtual processors a VM there can have at most: those of the host, each of its threads one. None where vCenter does not say.
    pub processors: Option<u32>,
    /// Its memory, in bytes. None where vCenter does not say.
    pub memory: Option<u64>,
    /// How much of that is used, in bytes. None where vCenter does not say.
    pub memory_used: Option<u64>,
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

    /// The memory that nothing uses, in bytes; 0 where vCenter does not say.
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

/// How long a host may take to be connected to.
const CONNECTING: Duration = Duration::from_secs(5);
/// Where hosts take uploads.
const HTTPS: u16 = 443;

impl Client {
    /// Why this machine cannot connect to a host of this name; none if it can. An upload goes to the host that the lease names
    /// (`HttpNfcLeaseDeviceUrl.url`), at port 443, or at that of the server where the two share one.
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
