//! The calls to an API server: untyped objects by name. Writes fail if the object was changed since it was read. The kinds known
//! here are those of shared lists: a claim needs all addresses in use, and a limit needs all Machines and clusters.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use kube::Resource;
use serde_json::Value;

use super::failure::Failure;
use super::in_use::AddressesInUse;
use super::inventory::inventory_of;
use crate::decisions::ClusterInventory;
use crate::objects::{Machine, PoolAddress, Tenant, TenantCluster};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collection {
    /// Group and version, such as `kaas.local/v1alpha1`; `v1` of the core group.
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    /// `None` for kinds without a namespace, and for a list over all namespaces.
    pub namespace: Option<String>,
}

impl Collection {
    pub fn of<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Self {
        Self { version: K::api_version(&()), plural: K::plural(&()), namespace: namespace.map(str::to_owned) }
    }
}

/// The control cluster, as far as this process knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlCluster {
    /// The virtual IP of its API.
    pub virtual_address: Option<Ipv4Addr>,
    /// Whether its kinds may be those of a former release. An upgrade replaces them at its commit.
    pub has_former_kinds: bool,
}

#[async_trait]
pub trait Objects: Send + Sync {
    /// The control cluster of this API server.
    fn control_cluster(&self) -> ControlCluster {
        ControlCluster::default()
    }

    /// All objects, or those with this value of a label. A name that begins with a dot is the path of a field instead
    /// (`.spec.clusterRef.name`). The kind's definition must list it in `selectableFields`.
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure>;

    /// The addresses in use of all pools, from a list that begins after the first poll. With `since`, a list of this number or
    /// later is enough.
    async fn in_use(&self, since: Option<u64>) -> Result<Arc<AddressesInUse>, Failure> {
        // Without shared lists there are no numbers.
        let number = since.unwrap_or_default();
        let all = self.list(&Collection::of::<PoolAddress>(None), None).await?;
        AddressesInUse::read(number, &all).map(Arc::new)
    }

    /// All clusters, Machines and Tenants, from which the usage of limits and quotas is computed. It has all that the caller wrote
    /// before. The Machines are listed first, so that the cluster of each Machine is in the list of clusters.
    async fn inventory(&self) -> Result<Arc<ClusterInventory>, Failure> {
        list_inventory(self).await
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure>;

    /// Creates an object. If several callers create one name, one of them succeeds. The status is not stored.
    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    /// Replaces an object that was read, without its status.
    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    /// Applies a merge patch (RFC 7386), without the status. If it has a `resourceVersion`, it fails if the object was changed
    /// since.
    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure>;

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure>;

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure>;

    /// Deletes an object, if its UID and `resourceVersion` are still as they were read.
    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure>;
}

/// All clusters, Machines and Tenants ([`Objects::inventory`]).
pub(super) async fn list_inventory<O: Objects + ?Sized>(objects: &O) -> Result<Arc<ClusterInventory>, Failure> {
    let machines = objects.list(&Collection::of::<Machine>(None), None).await?;
    let clusters = objects.list(&Collection::of::<TenantCluster>(None), None).await?;
    let tenants = match objects.list(&Collection::of::<Tenant>(None), None).await {
        Err(failure) if lacks_kind(objects, &failure) => Vec::new(),
        tenants => tenants?,
    };
    inventory_of(machines, clusters, tenants).map(Arc::new)
}

/// Whether a list of a new kind failed because the control cluster has the kinds and rights of a former release. Then it has no
/// object of the kind.
pub fn lacks_kind<O: Objects + ?Sized>(objects: &O, failure: &Failure) -> bool {
    matches!(failure, Failure::Missing | Failure::Refused(_)) && objects.control_cluster().has_former_kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::fenced::Fenced;
    use crate::reach::in_memory::InMemory;
    use crate::term::Term;

    #[test]
    fn only_a_former_release_lacks_a_kind() {
        for has_former_kinds in [true, false] {
            let own = ControlCluster { has_former_kinds, ..ControlCluster::default() };
            let fenced = Fenced::new(Arc::new(InMemory::default()), Term::unlimited("controller one")).of(own);
            assert_eq!(lacks_kind(&fenced, &Failure::Missing), has_former_kinds);
            assert_eq!(lacks_kind(&fenced, &Failure::Refused("403".to_owned())), has_former_kinds);
            assert!(!lacks_kind(&fenced, &Failure::Changed));
        }
    }
}
