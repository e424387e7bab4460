//! Where people meet the node: console, commands, support bundle.
//!
//! Nothing calls it but `main`.

pub mod bundle;
pub mod cli;
pub mod console;
