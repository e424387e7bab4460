//! The inventory: paths, folders, and where VMs run.

mod compute;
mod folder;
mod network;
mod path;
#[cfg(test)]
mod tests;

pub use compute::{Compute, Host, Pool};
pub use network::Network;
