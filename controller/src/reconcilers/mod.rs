//! One reconciler for each kind: it looks, decides, saves, acts, and returns when to look again. It runs when its object or an
//! object on which it depends has changed, and never twice at once for one object.

pub mod ip_pool;
pub mod node_image;
pub mod node_pool;
#[cfg(test)]
mod points;
pub mod pool_address;
pub mod provider;
pub mod tenant;
pub mod tenant_cluster;
#[cfg(test)]
mod tests;
pub mod vm_class;

use std::time::Duration;

use kube::ResourceExt;

use crate::context::{Attempt, ReconcileError};
use crate::decisions::{Access, is_begun};
use crate::objects::{Provider, Tenant, TenantCluster};
use crate::reach::kinds::{Kind, Tolerant, full_name};
use crate::reach::{Objects, kinds, lacks_kind};

/// The finalizer of objects that others use.
pub const IN_USE: &str = "kaas.local/in-use";

/// All objects of a kind, in all namespaces, for a caller that must miss none.
async fn all<K: Kind>(objects: &dyn Objects) -> Result<Vec<K>, ReconcileError> {
    kinds::list(objects, None, None).await.attempting(&format!("listing {}s", K::kind(&())))
}

/// As [`all`]. An object whose status cannot be read does not stop the caller.
async fn tolerant<K: Kind>(objects: &dyn Objects) -> Result<Tolerant<K>, ReconcileError> {
    kinds::list_tolerant(objects, None, None).await.attempting(&format!("listing {}s", K::kind(&())))
}

/// The clusters that keep the Providers that they name. A cluster whose status cannot be read may be begun, so it does.
async fn users(objects: &dyn Objects, providers: &[Provider]) -> Result<Vec<TenantCluster>, ReconcileError> {
    let Tolerant { whole, unread } = tolerant::<TenantCluster>(objects).await?;
    let tenants = tenants(objects).await?;
    let keeping = whole.into_iter().filter(|cluster| keeps(cluster, providers, &tenants));
    Ok(keeping.chain(unread.into_iter().map(|(cluster, _)| cluster)).collect())
}

async fn tenants(objects: &dyn Objects) -> Result<Vec<Tenant>, ReconcileError> {
    match kinds::list_tolerant::<Tenant>(objects, None, None).await {
        Err(failure) if lacks_kind(objects, &failure) => Ok(Vec::new()),
        listed => Ok(listed.attempting("listing Tenants")?.all()),
    }
}

/// Whether a cluster keeps the objects that it names. A cluster in a namespace that may not use its Provider does not, unless it
/// was begun: any tenant can create such a cluster.
fn keeps(cluster: &TenantCluster, providers: &[Provider], tenants: &[Tenant]) -> bool {
    let provider = providers.iter().find(|provider| provider.name_any() == cluster.spec.provider_ref.name);
    let namespace = cluster.namespace().unwrap_or_default();
    is_begun(cluster) || provider.is_none_or(|provider| Access::of(tenants, &namespace).provider(provider).is_none())
}

/// Logs a failed write of a status. The caller returns the error that the status should show.
fn log_unwritten<K: Kind, T>(object: &K, written: Result<T, ReconcileError>) {
    if let Err(error) = written {
        log::warn!("{}: {error}", full_name(object));
    }
}

/// The interval of reconciles without a change: a watch may have missed one.
const NOW_AND_THEN: Duration = Duration::from_secs(10 * 60);
