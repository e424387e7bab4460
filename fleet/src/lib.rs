//! The appliances seen from outside the VMs: what runs them ([`hypervisor`]), who may change them ([`authority`]), what
//! they say ([`node`]), and how their images are swapped ([`upgrade`]).

pub mod authority;
pub mod files;
pub mod hypervisor;
pub mod node;
pub mod upgrade;
