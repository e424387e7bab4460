//! The base of the node: programs, files, disks, the system bus, and the platform.
//!
//! This room does not depend on clusters, the configuration or other nodes.

pub mod at_once;
pub mod bus;
pub mod command;
pub mod disk;
#[cfg(test)]
pub(crate) mod fake_server;
#[cfg(test)]
pub(crate) mod fake_systemd;
pub mod files;
#[cfg(test)]
pub mod fixture;
pub mod hex;
pub mod https;
pub mod image;
pub mod nftables;
pub mod platform;
pub mod services;
pub mod tls;
pub mod vmware;
pub mod worker_state;
