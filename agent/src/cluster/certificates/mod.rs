//! The node's certificates while it runs: which there are, when they end, what
//! is renewed when, and who has to be told. How single ones are made is known
//! to [`crate::cluster::pki`] and [`crate::cluster::kubernetes::kubeadm`].

pub mod api;
pub mod command;
mod inventory;
pub mod issue;
pub mod renew;
pub mod renewal;
pub mod revocation_list;
pub mod users;

pub use inventory::{API, CA_NAMES, Certificate, inventory};
