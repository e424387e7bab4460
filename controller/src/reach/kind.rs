//! A kind as a type, and how an object of it is understood.

use std::fmt::Debug;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;

/// A kind whose objects can be read and written.
pub trait Kind: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync {}

impl<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync> Kind for K {}

/// An object as one of its kind.
///
/// # Errors
/// When it is not understood.
pub(super) fn read<K: Kind>(object: Value) -> Result<K, Failure> {
    serde_json::from_value(object).map_err(|error| {
        Failure::Unknown(anyhow::Error::from(error).context(format!("understanding a {}", K::kind(&()))))
    })
}
