//! The inventory: paths, folders, hosts and networks.

mod folder;
mod host;
mod network;
mod path;
#[cfg(test)]
mod tests;

pub use host::Host;
