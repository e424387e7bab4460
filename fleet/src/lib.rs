//! The appliances seen from outside the VMs: what runs them ([`hypervisor`]; [`vcenter`] is one), who may change them ([`authority`]), what
//! they say ([`node`]), how their images are swapped ([`upgrade`]), and how workers come and go ([`workers`]).

pub mod authority;
pub mod deploy;
mod ending;
pub mod files;
pub mod hypervisor;
pub mod journals;
pub mod node;
mod notice;
pub mod upgrade;
pub mod vcenter;
pub mod workers;

pub use ending::Cancelled;
pub use notice::Notice;
