//! The VMware hypervisor as a guest speaks to it.

pub mod backdoor;
pub mod hardware;
