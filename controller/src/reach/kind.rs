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
    let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let words = format!("the {} {place}{} cannot be read: {why}", K::kind(&()), name.unwrap_or_default());
    Failure::Unreadable { namespace: namespace.map(str::to_owned), words }
}
