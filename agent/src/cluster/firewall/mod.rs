//! The host firewall: the packets that are accepted at this node, and through it. All others are dropped.
//!
//! ```text
//! contract::ports, control-plane nodes, administrators' networks, host ports of pods → Rules → one table of nftables
//! ```
//!
//! It is loaded before the network comes up, and maintenance keeps it. It accepts connections that this node began, and
//! packets that kube-proxy and the CNI plugins forward to pods (services, NodePorts, host ports). The module that
//! follows the list of nodes knows the other nodes: [`super::pod_network`] marks their packets.
//!
//! At boot it fails closed: without its rules a node does not go on the network. Nothing else protects the virtual IP
//! and the pod network. kube-proxy and the pod network, which need nftables too, could not work either. The console
//! still works. Later the rules are never removed before others are loaded.

mod host_ports;
mod rules;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::codes;
use contract::finding::Finding;

use crate::host::command::{self, Runner};
use crate::host::files;
use crate::host::nftables::Table;

pub use host_ports::{HostPorts, Pod};
pub use rules::Rules;

/// The last ports that pods requested. After a restart, the agent reads them and closes no open port.
const HOST_PORTS: &str = "/run/kaas/host-ports.json";

#[derive(Debug)]
pub struct Firewall {
    kept: PathBuf,
    state: Mutex<FirewallState>,
}

#[derive(Debug)]
struct FirewallState {
    table: Table,
    host_ports: HostPorts,
}

impl Firewall {
    /// The firewall of the node below `root`. Its table may be loaded already.
    pub fn new(root: &Path) -> Self {
        let kept = files::below(root, HOST_PORTS);
        let host_ports = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let table = Table::new("inet", "kaas_firewall");
        Self { kept, state: Mutex::new(FirewallState { table, host_ports: host_ports.unwrap_or_default() }) }
    }

    /// Ensures that the rules are loaded, and returns whether they had to be. They are loaded at first, after a change
    /// of the rules, and after another program has changed the table. After an error the former rules remain.
    pub fn ensure(&self, runner: &dyn Runner, rules: &Rules) -> Result<bool, Finding> {
        let FirewallState { table, host_ports } = &mut *self.state();
        table.ensure(runner, &rules.content(host_ports)).map_err(|error| failed(&error))
    }

    /// Accepts the ports of the pods in the host's network, from the next [`Firewall::ensure`] on.
    pub fn open(&self, host_ports: HostPorts) -> io::Result<()> {
        let mut state = self.state();
        if state.host_ports != host_ports {
            state.host_ports = host_ports;
            files::write_atomically(&self.kept, &serde_json::to_vec(&state.host_ports)?, 0o644)?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, FirewallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: &command::Error) -> Finding {
    codes::FIREWALL_FAILED.finding(
        "firewall",
        format!("loading the rules failed: {error}"),
        "It is tried again. If it stays, power the VM off and on; on a node that runs, compare `sudo nft list table inet \
         kaas_firewall` with another node's",
    )
}
