//! A kind as a type, and how an object of it is read.

use std::fmt::{Debug, Display};

use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;

/// A kind whose objects can be read and written.
pub trait Kind: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync {}

impl<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync> Kind for K {}

/// An object as one of its kind.
///
/// # Errors
/// [`Failure::Unreadable`] with the name of the object.
pub(super) fn read<K: Kind>(object: &Value) -> Result<K, Failure> {
    <K as Deserialize<'_>>::deserialize(object).map_err(|error| unreadable::<K>(object, error))
}

fn unreadable<K: Kind>(object: &Value, why: impl Display) -> Failure {
    let [namespace, name] = ["namespace", "name"].map(|field| object["metadata"][field].as_str());
    let words = format!("the {} {} cannot be read: {why}", K::kind(&()), joined(namespace, name));
    Failure::Unreadable { namespace: namespace.map(str::to_owned), words }
}

/// The name of an object, after its namespace if it has one.
pub fn full_name<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    joined(meta.namespace.as_deref(), meta.name.as_deref())
}

fn joined(namespace: Option<&str>, name: Option<&str>) -> String {
    let name = name.unwrap_or_default();
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}
