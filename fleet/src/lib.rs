//! The appliances seen from outside the VMs. [`hypervisor`] runs them ([`vcenter`] is one), and [`lease`] says who may
//! change them. [`nodes`] is their API, [`upgrade`] swaps their images, and [`workers`] creates and removes workers. The
//! shared parts of these engines are in [`engine`].
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! codes
//! control_plane upgrade vcenter workers
//! engine
//! hypervisor
//! journals nodes
//! lease
//! cancel files find_ova notice schema timestamp
//! ```

mod cancel;
mod codes;
pub mod control_plane;
pub mod engine;
pub mod files;
mod find_ova;
pub mod hypervisor;
pub mod journals;
pub mod lease;
pub mod nodes;
mod notice;
pub mod schema;
#[cfg(test)]
mod testing;
mod timestamp;
pub mod upgrade;
pub mod vcenter;
pub mod workers;

pub use cancel::Cancelled;
pub use codes::{CODE_TABLES, CodeTable};
pub use find_ova::{NoOva, find_ova, find_ova_of};
pub use notice::Notice;
