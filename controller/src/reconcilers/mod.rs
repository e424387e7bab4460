//! One for each kind: looks, decides, saves, acts, and says when it wants to look again.

pub mod node_pool;
pub mod tenant_cluster;
