//! The appliance's agent: from power-on to a control node, and every day after that.
//!
//! ```text
//! faces        console, commands, support bundle
//! boot         early → run: plan → steps → maintenance
//! maintenance  periodic checks and background jobs
//! node         what a running node works with; its endpoint
//! upgrade      image swaps, Kubernetes minors
//! status       how the node is, for everybody to read
//! cluster      keys, rendezvous, etcd, Kubernetes, networks, records
//! system       what the host system is set to
//! intake       OVF environment → configuration
//! host         programs, files, disks, bus, platform
//! ```
//!
//! A room calls those below it, never one above.

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
