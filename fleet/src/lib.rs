//! The appliances seen from outside the VMs.

pub mod node;
pub mod upgrade;
