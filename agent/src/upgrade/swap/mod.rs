//! The image swap from this node's view. A VM of another image takes over the data disk. The node keeps its identity,
//! certificates and etcd member.
//!
//! The data disk itself records, outside of any file system, which VM may take it: see [`crate::host::disk::ownership`]. The
//! hypervisor is changed elsewhere; nothing here depends on one.

pub mod adopt;
pub mod boot_health;
pub mod command;
pub mod context;
pub mod evacuate;
pub mod facts;
pub mod force_adopt;
mod judge;
pub mod manager;
mod manager_state;
pub mod node_record;
pub mod peers;
mod preparation_record;
mod prepare;
pub mod publisher;
pub mod quorum;
pub mod release;
