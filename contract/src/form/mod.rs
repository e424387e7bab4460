//! The form of a VM. Every property is read, and then all are checked against each other. The VM checks its own form, and a
//! deployer checks forms before there are VMs. Nothing is looked up and nothing is changed.

mod checks;
mod draft;

pub use checks::{all, clear_text};
pub use draft::{Draft, SecretNeed, Texts, read};
