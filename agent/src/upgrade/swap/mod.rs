//! The image swap as this node sees it: a VM of another image takes the data
//! disk over, and the node goes on with the same identity, certificates and
//! etcd member.
//!
//! Who may take the disk stands on the disk itself, outside of any file system;
//! see [`crate::host::disk::ownership`]. What is done to the hypervisor is others' work: nothing here
//! knows of one.

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
