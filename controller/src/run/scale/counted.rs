//! An API server in memory with a latency. It counts calls by reconciler, verb and kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::reach::in_memory::InMemory;
use crate::reach::{Collection, Failure, Objects};

/// The latency of a call, by the paused clock: calls of concurrent reconcilers interleave.
const LATENCY: Duration = Duration::from_millis(5);

/// The origin of a call: a namespace, and the plural of the reconciler's kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    pub namespace: String,
    pub reconciler: String,
}

/// A verb, and the plural of a kind.
pub type Call = (&'static str, String);

/// The number of calls, and of objects that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub objects: u64,
}

pub type Counts = BTreeMap<(Whose, Call), Count>;

tokio::task_local! {
    static WHOSE: Whose;
}

/// Counts the calls of some work with this origin.
pub async fn as_of<F: Future>(whose: Whose, work: F) -> F::Output {
    WHOSE.scope(whose, work).await
}

/// Clones share the counts.
#[derive(Clone)]
pub struct Counted {
    api: InMemory,
    counts: Arc<Mutex<Counts>>,
}

impl Counted {
    pub fn new(api: &InMemory) -> Self {
        Self { api: api.clone(), counts: Arc::default() }
    }

    /// The counts since the last call of this function.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock().unwrap())
    }

    /// Whether calls with this origin were counted since.
    pub fn has_called(&self, whose: &Whose) -> bool {
        self.counts.lock().unwrap().keys().any(|(of, _)| of == whose)
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        of: &Collection,
        asked: impl Future<Output = Result<T, Failure>> + Send,
        read: fn(&T) -> usize,
    ) -> Result<T, Failure> {
        tokio::time::sleep(LATENCY).await;
        let answer = asked.await;
        let whose = WHOSE.try_with(Whose::clone).unwrap_or_default();
        let objects = answer.as_ref().map(read).unwrap_or_default();
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry((whose, (verb, of.plural.clone().into_owned()))).or_default();
        (count.calls, count.objects) = (count.calls + 1, count.objects + objects as u64);
        drop(counts);
        answer
    }
}

#[async_trait]
impl Objects for Counted {
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        self.call("list", of, self.api.list(of, label), |all| all.len()).await
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        self.call("get", of, self.api.get(of, name), |_| 1).await
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.call("create", of, self.api.create(of, object), |_| 0).await
    }

    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.call("update", of, self.api.replace(of, object), |_| 0).await
    }

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.call("update", of, self.api.replace_status(of, object), |_| 0).await
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.call("patch", of, self.api.patch(of, name, part), |_| 0).await
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.call("patch", of, self.api.patch_status(of, name, part), |_| 0).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.call("delete", of, self.api.delete(of, name), |_| 0).await
    }

    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure> {
        self.call("delete", of, self.api.delete_as_read(of, object), |_| 0).await
    }
}
