//! The interfaces to users: console, commands, support bundle.

pub mod bundle;
pub mod cli;
pub mod console;
