//! The parts of a node: keys, the rendezvous of the nodes, etcd, Kubernetes, networks, and their records.
//!
//! Each part checks and acts independently. The rooms above decide the order. Uses [`crate::host`], [`crate::intake`]
//! and [`crate::system`].

pub mod addons;
pub mod certificates;
pub mod controller_end;
pub mod encryption;
pub mod etcd;
pub mod firewall;
pub mod join;
pub mod join_window;
pub mod kubernetes;
pub mod payload;
pub mod pki;
pub mod pod_network;
pub mod reachability;
pub mod records;
pub mod recovered_keys;
pub mod rendezvous;
#[cfg(test)]
mod settings;
pub mod tenants;
pub mod virtual_ip;

use std::time::Duration;

/// How long etcd or an API server may take for a short answer, times the timeout factor.
pub const REQUEST: Duration = Duration::from_secs(5);
