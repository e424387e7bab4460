//! The node goes over to another image, and to the next Kubernetes minor.
//!
//! Calls what is below; asks nothing of a hypervisor.

pub mod kubernetes;
pub mod swap;
