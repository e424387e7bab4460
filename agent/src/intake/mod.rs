//! Reads, checks and reports the OVF environment as a whole, and makes a configuration of it.
//!
//! This room changes nothing on the node. It uses only [`crate::host`].

pub mod config;
pub mod environment;
pub mod preflight;
