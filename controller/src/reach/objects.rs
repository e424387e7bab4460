//! What is asked of an API server: objects by name, each written only as it was read. Knows no kind but one:
//! all addresses in use are to be seen by each who takes one.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use kube::Resource;
use serde_json::Value;

use super::failure::Failure;
use super::in_use::AddressesInUse;
use crate::objects::PoolAddress;

/// The objects of a kind in a namespace, or in none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collection {
    /// Group and version, such as `kaas.local/v1alpha1`; `v1` of the core group.
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    /// The namespace; none of kinds that are of the whole cluster, and for a list over all namespaces.
    pub namespace: Option<String>,
}

impl Collection {
    pub fn of<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Self {
        Self { version: K::api_version(&()), plural: K::plural(&()), namespace: namespace.map(str::to_owned) }
    }
}

/// An API server, or one in memory.
#[async_trait]
pub trait Objects: Send + Sync {
    /// All that carry a label with this value; all without one. A name that begins with a dot is no label, but the path of a field that is
    /// selectable for the kind, as its definition has it in `selectableFields` (`.spec.clusterRef.name`).
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure>;

    /// The addresses that are in use, of all pools, as a list says that is begun after this is awaited first. To who has seen one of a number
    /// (`since`) that one will do, or a later one.
    async fn in_use(&self, since: Option<u64>) -> Result<Arc<AddressesInUse>, Failure> {
        // One that shares no lists has no numbers.
        let number = since.unwrap_or_default();
        let all = self.list(&Collection::of::<PoolAddress>(None), None).await?;
        AddressesInUse::read(number, all).map(Arc::new)
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure>;

    /// Makes one: of several that make one of the same name, one succeeds. Its status is not kept.
    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    /// Writes one as it was read but for what is to be otherwise, without its status.
    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    /// The same of its status, and of that alone.
    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure>;

    /// Lays a part over one (RFC 7386), without its status. With a `resourceVersion` in its metadata only over the one that was read.
    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure>;

    /// The same of its status, and of that alone.
    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure>;

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure>;

    /// Removes one, if it is still as it was read: the same one, and unchanged since.
    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure>;
}
