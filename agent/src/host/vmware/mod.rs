//! The guest's interface to the VMware hypervisor.

pub mod backdoor;
pub mod hardware;
