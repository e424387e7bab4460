//! What the inside and the outside of an appliance VM agree upon: the form that people fill in, the
//! words in which the appliance answers, and the JSON that both sides write and read. Types, tables and
//! pure functions; nothing here touches a disk, a network or a VM.
//!
//! Images of different versions meet: a builder of today makes what an agent of yesterday reads. Whatever
//! crosses between versions is read tolerantly: an unknown field is left aside, a new one has a default.

pub mod codes;
pub mod finding;
pub mod image;
pub mod kubernetes_upgrade;
pub mod minor;
pub mod node;
pub mod paths;
pub mod payload;
pub mod platform;
pub mod ports;
pub mod properties;
pub mod secret;
pub mod swap;
pub mod version;
