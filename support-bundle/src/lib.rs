//! The shared parts of support bundles, those of a node and those of a control cluster. [`Redactor`] removes secrets from text.
//! [`Bundle`] packs texts into one file with a size limit and an index.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! bundle fields   parts with their shares and the index; fields of objects without secrets
//! archive redact  a .tar.gz with a size limit; the removal of secrets from text
//! ```

mod archive;
mod bundle;
mod fields;
mod redact;

pub use archive::Keep;
pub use bundle::{Bundle, Entry, Outcome, Part, directory_name, stamp};
pub use fields::redact_object;
pub use redact::{REMOVED, Redactor};
