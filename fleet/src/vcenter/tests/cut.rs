//! A store on a datastore that fails at one entry, or whose writer is killed at that entry.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::lease::Store;
use crate::vcenter::DatastoreStore;

/// The fault at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The writer is killed before the write. The action that the entry is about has happened.
    Before,
    /// The writer is killed when half of the entry is written.
    Half,
    /// The writer is killed after the write, before any consequence.
    After,
    /// The entry is not written, and the writer gets an error of unknown effect.
    Unwritten,
    /// The entry is written, and the writer gets the same error.
    Unanswered,
}

pub const CUTS: [Cut; 5] = [Cut::Before, Cut::Half, Cut::After, Cut::Unwritten, Cut::Unanswered];

/// The entries of the journals of deployments and upgrades are counted from 1.
pub struct CutStore<'a> {
    store: &'a DatastoreStore,
    at: Option<(usize, Cut)>,
    entries: AtomicUsize,
    killed: Notify,
}

impl<'a> CutStore<'a> {
    pub fn at(store: &'a DatastoreStore, at: Option<(usize, Cut)>) -> Self {
        Self { store, at, entries: AtomicUsize::new(0), killed: Notify::new() }
    }

    /// How many entries were to be written.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::SeqCst)
    }

    /// The result of a command. `None` if it was killed. The operator comes later, when no request of it can still
    /// arrive. An earlier operator waits, which other tests show and which takes time.
    pub async fn given<T>(&self, command: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            given = command => return Some(given),
            () = self.killed.notified() => {}
        }
        let last = self.store.numbers().await.unwrap().into_iter().max().expect("a hold");
        self.store.write(last, "released", "").await.unwrap();
        None
    }

    async fn die<T>(&self) -> T {
        self.killed.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl Store for CutStore<'_> {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        self.store.numbers().await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        self.store.exists(number).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.store.make(number).await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.store.remove(number).await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.store.read(number, file).await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let is_entry = ["journal", "deploy-"].iter().any(|begin| file.starts_with(begin));
        let entry = self.entries.fetch_add(usize::from(is_entry), Ordering::SeqCst) + 1;
        let cut = self.at.filter(|(at, _)| is_entry && *at == entry).map(|(_, cut)| cut);
        match cut {
            None => self.store.write(number, file, text).await,
            Some(Cut::Before) => self.die().await,
            Some(Cut::Half) => {
                let half = String::from_utf8_lossy(&text.as_bytes()[..text.len() / 2]);
                self.store.write(number, file, &half).await.unwrap();
                self.die().await
            }
            Some(Cut::After) => {
                self.store.write(number, file, text).await.unwrap();
                self.die().await
            }
            Some(Cut::Unwritten) => anyhow::bail!("the datastore does not answer"),
            Some(Cut::Unanswered) => {
                self.store.write(number, file, text).await.unwrap();
                anyhow::bail!("the datastore's answer is lost")
            }
        }
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.store.files(number).await
    }
}
