//! The interface between the inside and the outside of an appliance VM. It has the deployment form, the appliance's answers,
//! and the JSON of both sides as types, tables and pure functions. Nothing here uses a disk, a network or a VM.
//!
//! # Versions meet
//!
//! After a rollback, an older agent reads records of a newer one. An operator's command talks to nodes of other versions. So:
//!
//! - *Answers and records* (also what a container engine gives a VM) are read tolerantly. An unknown field is ignored, and a
//!   new field has a default. A record that is written again keeps unknown fields, except in elements of lists that are changed
//!   ([`json::keep_unknown`]). A record that replaces another thing's record keeps nothing of it.
//! - *Requests* (the bodies of `POST`) are read strictly, because a reader must not act as if an unknown field were missing
//!   ([`json::read_strictly`]). The identity slots of a data disk are read strictly, too: an identity with unknown parts is of
//!   a later version, and is left alone.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! form
//! properties
//! deployer node recovery statement swap
//! codes image kubeconfig platform
//! bios_uuid configure console encoding finding join_token json kubernetes_upgrade local_volumes minor
//! paths payload pod_security ports renewal replacement role secret session version worker_records
//! ```

#![deny(missing_docs)]

pub mod bios_uuid;
pub mod codes;
pub mod configure;
mod console;
pub mod deployer;
mod encoding;
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
