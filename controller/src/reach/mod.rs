//! Access to the API server, to the store on it for leases and journals of `fleet`, and to the hypervisors of Providers. This
//! room makes no decisions.

mod api;
mod claim;
mod failure;
mod fenced;
#[cfg(test)]
pub(crate) mod in_memory;
mod in_use;
mod infrastructure;
mod inventory;
mod kind;
pub mod kinds;
mod left_over;
mod objects;
mod pool_store;
pub mod providers;
mod snapshots;
mod store;
mod usage_ledger;
mod used_namespaces;

pub use self::api::Api;
pub use self::claim::claim;
pub use self::failure::Failure;
pub use self::fenced::Fenced;
pub use self::in_use::AddressesInUse;
pub use self::infrastructure::Infrastructure;
pub use self::left_over::clear_left_over;
pub use self::objects::{Collection, ControlCluster, Objects, lacks_kind};
pub use self::pool_store::PoolStore;
pub use self::store::{ClusterStore, Swap};
pub use self::used_namespaces::{add_used_namespace, correct_used_namespaces, remove_used_namespace};
