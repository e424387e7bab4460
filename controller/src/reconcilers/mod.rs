//! One for each kind: it looks, decides, saves, acts, and says when it wants to look again. It is called whenever its object or
//! something that it depends on has changed, and never twice at once for one object.

pub mod ip_address;
pub mod ip_pool;
pub mod node_image;
pub mod node_pool;
#[cfg(test)]
mod points;
pub mod provider;
pub mod tenant_cluster;
#[cfg(test)]
mod tests;
pub mod vm_class;

use std::time::Duration;

/// By it an object is kept for as long as others need it.
pub const IN_USE: &str = "kaas.local/in-use";

/// So often is looked even where nothing was heard: a change may have been missed.
const NOW_AND_THEN: Duration = Duration::from_secs(10 * 60);
