//! The appliances seen from outside the VMs: what runs them ([`hypervisor`]; [`vcenter`] is one), who may change them ([`lease`]), what
//! they say ([`nodes`]), how their images are swapped ([`upgrade`]), and how workers come and go ([`workers`]).

mod cancel;
pub mod control_plane;
pub mod files;
pub mod hypervisor;
pub mod journals;
pub mod lease;
pub mod nodes;
mod notice;
pub mod upgrade;
pub mod vcenter;
pub mod workers;

pub use cancel::Cancelled;
pub use notice::Notice;
