//! Settings of the host system that a node needs before it can be part of a cluster: network, time, names, access, trust.
//! They are made through systemd's own interfaces.
//!
//! Each `ensure` looks first, then acts, and returns whether it changed anything. `/etc` is in memory, so all settings
//! are written again at each boot. This room does not depend on Kubernetes.

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
