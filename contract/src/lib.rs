//! What the inside and the outside of an appliance VM agree upon: the form that people fill in, the
//! words in which the appliance answers, and the JSON that both sides write and read. Types, tables and
//! pure functions; nothing here touches a disk, a network or a VM.
//!
//! # Versions meet
//!
//! An image swap that goes back gives an older agent what a newer one has written, and an operator's command meets
//! nodes of other versions. So:
//!
//! - What is *told or kept* (answers, records, what an engine tells a VM) is read tolerantly: an unknown field is left
//!   aside, and a field that came later has a default. A record that is written anew keeps what its writer does not
//!   know, but of an element of a list that it changes ([`json::keep_unknown`]). What begins in the place of something
//!   else has nothing of it.
//! - What *asks for an act* (the bodies of `POST`) is read strictly: whoever does not know a field must not act as
//!   if it were not there ([`json::read_strictly`]). So are the identity slots of a data disk: an identity that is not
//!   understood to its end is one of a later version, and is left alone.

#![deny(missing_docs)]

pub mod bios_uuid;
pub mod codes;
mod console;
pub mod deployer;
pub mod finding;
pub mod form;
pub mod image;
pub mod join_token;
pub mod json;
pub mod kubeconfig;
pub mod kubernetes_upgrade;
pub mod local_volumes;
pub mod minor;
pub mod node;
pub mod paths;
pub mod payload;
pub mod platform;
pub mod pod_security;
pub mod ports;
pub mod properties;
pub mod recovery;
pub mod renewal;
pub mod replacement;
pub mod role;
pub mod secret;
pub mod session;
pub mod statement;
pub mod swap;
pub mod version;
pub mod worker_records;
