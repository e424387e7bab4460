//! The appliances seen from outside the VMs. [`hypervisor`] runs them ([`vcenter`] is one), and [`lease`] says who may
//! change them. [`nodes`] is their API, [`upgrade`] swaps their images, and [`workers`] creates and removes workers.

mod cancel;
pub mod control_plane;
pub mod files;
pub mod hypervisor;
pub mod journals;
pub mod lease;
pub mod nodes;
mod notice;
#[cfg(test)]
mod testing;
pub mod upgrade;
pub mod vcenter;
pub mod workers;

pub use cancel::Cancelled;
pub use notice::Notice;
