//! The appliances seen from outside the VMs.

pub mod lab;
pub mod node;
pub mod upgrade;
