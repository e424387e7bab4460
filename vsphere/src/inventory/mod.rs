//! The inventory: paths, folders, and where VMs run.

mod folder;
mod host;
mod network;
mod path;
#[cfg(test)]
mod tests;

pub use host::Host;
