//! The interfaces to users: console, commands, support bundle.
//!
//! Only `main` uses it.

pub mod bundle;
pub mod cli;
pub mod console;
