//! One for each kind: it looks, decides, saves, acts, and says when it wants to look again. It is called whenever its object or
//! something that it depends on has changed, and never twice at once for one object.

pub mod ip_pool;
pub mod node_image;
pub mod node_pool;
#[cfg(test)]
mod points;
pub mod pool_address;
pub mod provider;
pub mod tenant_cluster;
#[cfg(test)]
mod tests;
pub mod vm_class;

use std::time::Duration;

use kube::ResourceExt;

use crate::decisions::{is_begun, permission};
use crate::objects::{Provider, TenantCluster};

/// By it an object is kept for as long as others need it.
pub const IN_USE: &str = "kaas.local/in-use";

/// Whether a cluster has kept what it names: not one for which nothing was begun, in a namespace that its Provider does not allow. Anybody
/// makes such.
fn keeps(cluster: &TenantCluster, providers: &[Provider]) -> bool {
    let provider = providers.iter().find(|provider| provider.name_any() == cluster.spec.provider_ref.name);
    let namespace = cluster.namespace().unwrap_or_default();
    is_begun(cluster) || provider.is_none_or(|provider| permission(provider, &namespace).is_none())
}

/// A cluster as people tell it from others.
fn full_name(cluster: &TenantCluster) -> String {
    format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any())
}

/// So often is looked even where nothing was heard: a change may have been missed.
const NOW_AND_THEN: Duration = Duration::from_secs(10 * 60);
