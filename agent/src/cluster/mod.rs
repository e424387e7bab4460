//! What a node is made of: keys, the meeting of the nodes, etcd, Kubernetes, networks, and the records of it.
//!
//! Each part looks and acts on its own; in which order is decided above. Calls [`crate::host`], [`crate::intake`] and
//! [`crate::system`].

pub mod addons;
pub mod awaited;
pub mod certificates;
pub mod controller_end;
pub mod encryption;
pub mod etcd;
pub mod firewall;
pub mod given_keys;
pub mod join;
pub mod kubernetes;
pub mod payload;
pub mod pki;
pub mod pod_network;
pub mod records;
pub mod rendezvous;
#[cfg(test)]
mod settings;
pub mod surroundings;
pub mod tenants;
pub mod virtual_address;

use std::time::Duration;

/// How long etcd or an API server may take for a short answer, times the timeout factor.
pub const REQUEST: Duration = Duration::from_secs(5);
