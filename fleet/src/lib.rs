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

/// Implements a trait with async methods. Each line of the first part has a method of the trait. Its work is done by the method of
/// `self` or of a part that follows `=`. In the second form, one method of `self` does the work of all. Other methods follow in full.
#[macro_export]
macro_rules! delegate {
    (impl $trait:ident for $type:ty {
        $($name:ident($($argument:ident: $of:ty),*) -> $result:ty = $own:ident $(.$part:ident)*;)*
    } $($rest:tt)*) => {
        #[async_trait::async_trait]
        impl $trait for $type {
            $(async fn $name(&self, $($argument: $of),*) -> $result {
                self.$own$(.$part)*($($argument),*).await
            })*

            $($rest)*
        }
    };
    (impl $trait:ident for $type:ty = $own:ident {
        $($name:ident($($of:ty),*) -> $result:ty;)*
    } $($rest:tt)*) => {
        #[async_trait::async_trait]
        impl $trait for $type {
            $(async fn $name(&self, $(_: $of),*) -> $result {
                self.$own()
            })*

            $($rest)*
        }
    };
}

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
