//! Counts consecutive failures of each object of a kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::runtime::reflector::ObjectRef;

use crate::context::ReconcileError;
use crate::reach::kinds::full_name;

/// Clones share the counts.
pub struct Attempts<K: Resource<DynamicType = ()>>(Arc<Mutex<HashMap<ObjectRef<K>, u32>>>);

impl<K: Resource<DynamicType = ()>> Clone for Attempts<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource<DynamicType = ()>> Default for Attempts<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Resource<DynamicType = ()> + Clone> Attempts<K> {
    /// Records a result, and logs an error. A conflict with another client is not counted as a failure.
    pub fn note(&self, object: &K, trouble: Option<&ReconcileError>) {
        let reference = ObjectRef::from_obj(object);
        let mut counts = self.counts();
        match trouble {
            Some(trouble) if trouble.is_race() => {}
            Some(trouble) => {
                let count = counts.entry(reference).or_default();
                *count = count.saturating_add(1);
                log::warn!("{} {}, for the {count}. time: {trouble}", K::kind(&()), full_name(object));
            }
            None => drop(counts.remove(&reference)),
        }
    }

    /// The number of consecutive failures of an object.
    pub fn of(&self, object: &K) -> u32 {
        self.counts().get(&ObjectRef::from_obj(object)).copied().unwrap_or_default()
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<ObjectRef<K>, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
