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

pub(super) fn read<K: Kind>(object: &Value) -> Result<K, Failure> {
    <K as Deserialize<'_>>::deserialize(object).map_err(|error| unreadable::<K>(object, error))
}

/// Objects that the caller does not own, so that an unreadable status does not stop it.
#[derive(Debug)]
pub struct Tolerant<K> {
    pub whole: Vec<K>,
    /// The objects whose status cannot be read, without it, and each with the error.
    pub unread: Vec<(K, Failure)>,
}

impl<K> Tolerant<K> {
    /// All objects, for a caller that reads no status.
    pub fn all(self) -> Vec<K> {
        self.whole.into_iter().chain(self.unread.into_iter().map(|(object, _)| object)).collect()
    }
}

/// Reads objects that the caller does not own.
pub(super) fn read_tolerant<K: Kind>(objects: Vec<Value>) -> Result<Tolerant<K>, Failure> {
    let mut found = Tolerant { whole: Vec::new(), unread: Vec::new() };
    for mut object in objects {
        match read(&object) {
            Ok(read) => found.whole.push(read),
            Err(failure) => {
                if let Some(members) = object.as_object_mut() {
                    members.remove("status");
                }
                found.unread.push((read(&object)?, failure));
            }
        }
    }
    Ok(found)
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
