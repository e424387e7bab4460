//! From the OVF environment to a configuration: what people filled in is read, checked and reported whole.
//!
//! Changes nothing on the node. Calls [`crate::host`] alone.

pub mod config;
pub mod environment;
pub mod preflight;
