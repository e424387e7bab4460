//! One change of an object at a time, because vCenter rejects a second task on a VM.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::reference::MoRef;

type Turn = tokio::sync::Mutex<()>;

#[derive(Default)]
pub(super) struct ObjectLocks(Mutex<HashMap<MoRef, Weak<Turn>>>);

impl ObjectLocks {
    /// Waits until no other caller changes an object. The turn ends when the returned guard is dropped.
    pub(super) async fn take(&self, object: &MoRef) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let present = turns.get(object).and_then(Weak::upgrade);
            present.unwrap_or_else(|| {
                let turn = Arc::new(Turn::default());
                turns.insert(object.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}
