//! Moves the node to another image, and to the next minor version of Kubernetes.
//!
//! Uses the rooms below. Does not use a hypervisor.

pub mod kubernetes;
pub mod swap;
