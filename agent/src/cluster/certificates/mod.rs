//! The node's certificates while it runs: which exist, when they expire, when they are renewed, and which programs use
//! them. [`crate::cluster::pki`] and [`crate::cluster::kubernetes::kubeadm`] create single ones.

pub mod api;
pub mod command;
mod inventory;
pub mod issue;
pub mod renew;
pub mod renewal;
pub mod revocation_list;
pub mod users;

pub use inventory::{API, CA_NAMES, Certificate, inventory};
