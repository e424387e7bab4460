//! The sources of the OVF environment and its parser: guestinfo through the VMware backdoor, or a CD-ROM (the ISO
//! transport).
//!
//! This module knows the document's format and the keys of the property table. [`crate::intake::config`] interprets the
//! values.

pub mod document;
mod drive;
pub mod guestinfo;
pub mod iso;
pub mod medium;
pub mod source;

pub use document::Document;
pub use source::{Origin, Outcome};
