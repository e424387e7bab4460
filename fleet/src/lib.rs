//! The appliances seen from outside the VMs.

pub mod files;
pub mod node;
pub mod upgrade;
