//! Where the OVF environment comes from and how it is read: guestinfo through
//! the VMware backdoor, or a CD-ROM (the ISO transport).
//!
//! This module knows the form of the document and the keys of the property
//! table. What values mean is [`crate::intake::config`]'s.

pub mod document;
mod drive;
pub mod guestinfo;
pub mod iso;
pub mod medium;
pub mod source;

pub use document::Document;
pub use source::{Origin, Outcome};
