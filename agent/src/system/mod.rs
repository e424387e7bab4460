//! What a node needs of its host system before it can be part of a cluster, through systemd's own interfaces: network,
//! time, names, access, trust.
//!
//! Each `ensure` looks first, then acts, and says whether it changed anything. `/etc` is in memory: all of this is laid
//! again at each boot. Knows nothing of Kubernetes. Everything above may call it; calls [`crate::host`] and
//! [`crate::intake`] alone.

pub mod access;
pub mod address;
mod arp;
pub mod clock;
mod devices;
pub mod host_clock;
pub mod hostname;
pub mod lease;
pub mod network;
mod network_files;
mod networkd;
pub mod proxy;
pub mod time;
pub mod trust;
