//! The store of a dry run: it has no leases, and refuses all requests.

use anyhow::bail;
use async_trait::async_trait;

use super::Store;

pub(super) struct NoStore;

fn refused<T>() -> anyhow::Result<T> {
    bail!("a dry run holds no lease")
}

#[async_trait]
impl Store for NoStore {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        refused()
    }

    async fn exists(&self, _number: u64) -> anyhow::Result<bool> {
        refused()
    }

    async fn make(&self, _number: u64) -> anyhow::Result<bool> {
        refused()
    }

    async fn remove(&self, _number: u64) -> anyhow::Result<()> {
        refused()
    }

    async fn read(&self, _number: u64, _file: &str) -> anyhow::Result<Option<String>> {
        refused()
    }

    async fn write(&self, _number: u64, _file: &str, _text: &str) -> anyhow::Result<()> {
        refused()
    }

    async fn files(&self, _number: u64) -> anyhow::Result<Vec<String>> {
        refused()
    }
}
