//! An API server for a controller that dies, or is slow: before a call, or right after it.

use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

use crate::reach::in_memory::InMemory;
use crate::reach::{Collection, Failure, Objects};

/// Makes calls until it dies.
#[derive(Clone)]
pub struct Mortal {
    pub api: InMemory,
    calls: Arc<AtomicUsize>,
    /// The number of the call, and whether it dies before it.
    dies: Option<(usize, bool)>,
    pub died: Arc<Notify>,
    /// Lets a controller continue that was taken for dead: it was only slow.
    pub lives_on: Arc<Notify>,
}

impl Mortal {
    /// A controller that dies at this call, counted from 0 and from now, or never.
    pub fn new(api: &InMemory, dies: Option<(usize, bool)>) -> Self {
        Self { api: api.clone(), calls: Arc::default(), dies, died: Arc::default(), lives_on: Arc::default() }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn through<T>(&self, asked: impl Future<Output = T> + Send) -> T {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let dies = self.dies.filter(|(at, _)| *at == call).map(|(_, before)| before);
        if dies == Some(true) {
            self.dies().await;
        }
        let answer = asked.await;
        if dies == Some(false) {
            self.dies().await;
        }
        answer
    }

    async fn dies(&self) {
        self.died.notify_one();
        self.lives_on.notified().await;
    }
}

#[async_trait]
impl Objects for Mortal {
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        self.through(self.api.list(of, label)).await
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        self.through(self.api.get(of, name)).await
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through(self.api.create(of, object)).await
    }

    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through(self.api.replace(of, object)).await
    }

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through(self.api.replace_status(of, object)).await
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.through(self.api.patch(of, name, part)).await
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.through(self.api.patch_status(of, name, part)).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.through(self.api.delete(of, name)).await
    }

    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure> {
        self.through(self.api.delete_as_read(of, object)).await
    }
}
