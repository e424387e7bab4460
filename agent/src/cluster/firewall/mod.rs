//! The host firewall: what may come to this node, and through it. All else is dropped.
//!
//! ```text
//! contract::ports, control nodes, administrators' networks, host ports of pods → Rules → one table of nftables
//! ```
//!
//! Laid before the network comes up, kept by maintenance. Conversations that this node began, and what kube-proxy and the
//! CNI plugins send on to pods (services, NodePorts, host ports), pass. Which further nodes there are is known where the
//! list of nodes is followed: [`super::pod_network`] marks their packets.
//!
//! It fails closed at boot, and stays as it is later: without its rules a node does not go on the network, because the
//! virtual IP and the pod network are protected by nothing else; kube-proxy and the pod network, which need nftables too,
//! could not work either. The console is there. Rules that hold are never taken away before others hold.

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

/// What pods have asked for last, for an agent that starts again: it closes nothing that was open.
const HOST_PORTS: &str = "/run/kaas/host-ports.json";

/// The firewall of this node and its keeper.
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
    /// That of the node below `root`, which may have been laid already.
    pub fn new(root: &Path) -> Self {
        let kept = files::below(root, HOST_PORTS);
        let host_ports = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let table = Table::new("inet", "kaas_firewall");
        Self { kept, state: Mutex::new(FirewallState { table, host_ports: host_ports.unwrap_or_default() }) }
    }

    /// Sees to it that the rules hold, and says whether they had to be laid: at first, when they are others now, and when
    /// somebody has changed them.
    ///
    /// # Errors
    /// A finding when `nft` fails; what held before holds on.
    pub fn ensure(&self, runner: &dyn Runner, rules: &Rules) -> Result<bool, Finding> {
        let FirewallState { table, host_ports } = &mut *self.state();
        table.ensure(runner, &rules.content(host_ports)).map_err(|error| failed(&error))
    }

    /// Lets in what the pods in the host's network ask for, from the next [`Firewall::ensure`] on.
    ///
    /// # Errors
    /// They cannot be kept for the next start of the agent.
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
