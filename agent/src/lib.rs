//! The appliance's agent. It runs a control-plane node or a worker from power-on to shutdown.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! faces        console, commands, support bundle
//! boot         early → run: plan → steps → maintenance
//! maintenance  periodic checks and background jobs
//! node         what a running node works with; its endpoint
//! upgrade      image swaps, upgrades of Kubernetes
//! status       the state of the node, readable for all
//! cluster      keys, rendezvous, etcd, Kubernetes, networks, records
//! system       settings of the host system
//! intake       OVF environment → configuration
//! host         programs, files, disks, bus, platform
//! ```

pub mod boot;
pub mod cluster;
pub mod faces;
#[cfg(test)]
mod fuzz;
pub mod host;
pub mod intake;
pub mod maintenance;
pub mod node;
pub mod status;
pub mod system;
pub mod upgrade;
