//! The store of leases and journals.

use super::*;
use crate::lease::Store;

#[async_trait]
impl<P: Part> Store for World<P> {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        while self.lock().listing_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.call("store.numbers", Does::Looks, |state| Ok(state.holds.keys().copied().collect())).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        if self.lock().store_hangs {
            self.lock().asked_in_vain += 1;
            return std::future::pending().await;
        }
        self.call("store.exists", Does::Looks, move |state| Ok(state.holds.contains_key(&number))).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.call("store.make", Does::Writes, move |state| {
            let new = !state.holds.contains_key(&number);
            state.holds.entry(number).or_default();
            Ok(new)
        })
        .await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.call("store.remove", Does::Writes, move |state| state.holds.remove(&number).map(drop).context("no hold"))
            .await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        let file = file.to_owned();
        self.call("store.read", Does::Looks, move |state| {
            Ok(state.holds.get(&number).and_then(|files| files.get(&file)).cloned())
        })
        .await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let (file, text) = (file.to_owned(), text.to_owned());
        {
            let mut state = self.lock();
            let at = state.calls.len() + 1;
            if state.fault == Some((at, Fault::KilledHalf)) {
                let half = text[..text.len() / 2].to_owned();
                state.holds.entry(number).or_default().insert(file.clone(), half);
            }
        }
        self.call("store.write", Does::Writes, move |state| {
            state.holds.get_mut(&number).context("no hold")?.insert(file, text.clone());
            P::written(state, &text);
            Ok(())
        })
        .await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.call("store.files", Does::Looks, move |state| {
            Ok(state.holds.get(&number).into_iter().flat_map(|files| files.keys().cloned()).collect())
        })
        .await
    }
}
