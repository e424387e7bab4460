//! The appliances seen from outside the VMs.
