//! The shared parts of support bundles, those of a node and those of a control cluster. [`Redactor`] removes secrets from text.
//! [`Archive`] packs texts into one file with a size limit. Both are independent of the content.

mod archive;
mod redact;

pub use archive::{Archive, Keep};
pub use redact::{REMOVED, Redactor, names_a_secret};
