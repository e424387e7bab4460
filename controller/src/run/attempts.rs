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
    /// Records a result, and logs an error. A conflict with another client is not counted as a failure. Forgets objects that no
    /// longer exist.
    pub fn note(&self, object: &K, trouble: Option<&ReconcileError>, exists: impl Fn(&ObjectRef<K>) -> bool) {
        let reference = ObjectRef::from_obj(object);
        let mut counts = self.counts();
        match trouble {
            Some(trouble) if trouble.is_race() => {}
            Some(trouble) => {
                let count = counts.entry(reference).or_default();
                *count = count.saturating_add(1);
                log::warn!("{} {}, for the {count}. time: {trouble}", K::kind(&()), full_name(object));
                counts.retain(|reference, _| exists(reference));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture;
    use crate::objects::VMClass;

    /// Finding 25 of controller.md.
    #[test]
    fn deleted_objects_are_forgotten() {
        let attempts = Attempts::default();
        let [kept, gone] = ["kept", "gone"].map(|name| VMClass::new(name, fixture::class()));
        let trouble = ReconcileError::Other(anyhow::anyhow!("it fails"));
        attempts.note(&gone, Some(&trouble), |_| true);
        attempts.note(&kept, Some(&trouble), |reference| reference.name == "kept");
        assert_eq!((attempts.of(&kept), attempts.of(&gone)), (1, 0));
    }
}
