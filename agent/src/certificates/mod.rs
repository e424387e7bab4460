//! The node's certificates while it runs: which there are and when they end.
//! Knows nothing of how they are made: see [`crate::pki`] and
//! [`crate::kubernetes::kubeadm`].

mod inventory;

pub use inventory::{Certificate, inventory};
