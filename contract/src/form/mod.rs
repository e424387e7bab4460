//! The form of a VM as a whole: every property is read, and then all are held against each other. The VM judges its own
//! form by it, and whoever deploys VMs judges theirs before there are any. Nothing is looked up and nothing is changed.

mod checks;
mod draft;

pub use checks::{all, clear_text};
pub use draft::{Draft, SecretNeed, Texts, read};
