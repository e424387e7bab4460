//! The host firewall: what may come to this node, and through it. All else is dropped.
//!
//! ```text
//! contract::ports, control nodes, host ports of pods → Rules → one table of nftables
//! ```
//!
//! Laid before the network comes up, kept by maintenance. Conversations that this node began, and what kube-proxy and the
//! CNI plugins send on to pods (services, NodePorts, host ports), pass. Who may send to the tunnel of the pod network is
//! decided where the list of nodes is followed: in [`super::pod_network`].

mod host_ports;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use crate::host::command::{self, Runner};
use crate::host::nftables::Table;

pub use host_ports::HostPorts;
pub use rules::Rules;
pub(in crate::cluster) use rules::{set, tcp};

/// The firewall of this node and its keeper.
#[derive(Debug)]
pub struct Firewall(Mutex<State>);

#[derive(Debug)]
struct State {
    table: Table,
    host_ports: HostPorts,
}

impl Default for Firewall {
    fn default() -> Self {
        Self(Mutex::new(State { table: Table::new("inet", "kaas_firewall"), host_ports: HostPorts::default() }))
    }
}

impl Firewall {
    /// Sees to it that the rules hold, and says whether they had to be laid: at first, when they are others now, and when
    /// somebody has changed them.
    ///
    /// # Errors
    /// When `nft` fails; what held before holds on.
    pub fn ensure(&self, runner: &dyn Runner, rules: &Rules) -> Result<bool, command::Error> {
        let State { table, host_ports } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.ensure(runner, &rules.content(host_ports))
    }

    /// Lets in what the pods in the host's network ask for, from the next [`Firewall::ensure`] on.
    pub fn open(&self, host_ports: HostPorts) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).host_ports = host_ports;
    }
}
