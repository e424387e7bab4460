//! A store in memory: it outlives commands that are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use tokio::time::Instant;

use super::fault::{Call, CallKind, Fault, Late};
use super::{State, World};
use crate::lease::{MARGIN, Snapshots, Store};

#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub holds: BTreeMap<u64, BTreeMap<String, String>>,
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The answer is lost, and it happens later.
#[derive(Debug, thiserror::Error)]
#[error("the store does not answer now")]
struct IsLate;

impl World {
    async fn keeping<T>(
        &self,
        name: &'static str,
        kind: CallKind,
        act: impl FnOnce(&mut Kept) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        self.cutting(name, kind, |kept, _| act(kept)).await
    }

    /// The same for a call that may be done by half: then it is given that fault.
    async fn cutting<T>(
        &self,
        name: &'static str,
        kind: CallKind,
        act: impl FnOnce(&mut Kept, bool) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let fault = {
            let mut state = self.lock();
            state.arrive();
            state.faults.count(Call { name, kind })
        };
        match fault {
            Some(fault @ (Fault::CutBefore | Fault::CutLate)) => self.die(fault).await,
            Some(Fault::Error(_)) => bail!("the store does not answer ({name})"),
            Some(Fault::Late) => return Err(IsLate.into()),
            Some(Fault::Overtaken) => self.overtake(),
            _ => {}
        }
        let half = matches!(fault, Some(Fault::Half | Fault::CutHalf));
        let done = act(&mut self.lock().store, half);
        match fault {
            Some(fault) if fault.kills() => self.die(fault).await,
            Some(Fault::Overtaken) | None => done,
            Some(_) => bail!("the store's answer is lost ({name})"),
        }
    }

    /// Another command acquires the lease and releases it.
    pub fn overtake(&self) {
        let mut state = self.lock();
        let next = state.store.holds.keys().next_back().map_or(1, |last| last + 1);
        state.store.holds.entry(next).or_default().insert("released".to_owned(), String::new());
        state.overtaken = true;
    }

    /// The content of the store.
    pub fn store(&self) -> Kept {
        self.lock().store.clone()
    }
}

#[async_trait]
impl Store for World {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        while self.lock().listing_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.keeping("store.numbers", CallKind::Read, |kept| Ok(kept.holds.keys().copied().collect())).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        if self.lock().store_hangs {
            self.lock().asked_in_vain += 1;
        }
        while self.lock().store_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.keeping("store.exists", CallKind::Read, |kept| Ok(kept.holds.contains_key(&number))).await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.keeping("store.remove", CallKind::Keep, |kept| kept.holds.remove(&number).map(drop).context("no hold"))
            .await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let made = self
            .keeping("store.make", CallKind::Keep, |kept| {
                let new = !kept.holds.contains_key(&number);
                kept.holds.entry(number).or_default();
                Ok(new)
            })
            .await?;
        // The command that acquires it now has not been overtaken.
        self.lock().overtaken &= !made;
        Ok(made)
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.keeping("store.read", CallKind::Read, |kept| {
            Ok(kept.holds.get(&number).and_then(|files| files.get(file)).cloned())
        })
        .await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let name = if file.starts_with("journal") { "store.journal" } else { "store.write" };
        if file == "alone" {
            let mut state = self.lock();
            state.arrive();
            state.is_alone();
        }
        let put = |kept: &mut Kept, text: &str| {
            let hold = kept.holds.get_mut(&number).context("no hold")?;
            hold.insert(file.to_owned(), text.to_owned());
            anyhow::Ok(())
        };
        let half = &text[..text.len() / 2];
        let written = self.cutting(name, CallKind::Write, |kept, cut| put(kept, if cut { half } else { text })).await;
        if written.as_ref().is_err_and(|error| error.is::<IsLate>()) {
            let (file, text) = (file.to_owned(), text.to_owned());
            let effect = Box::new(move |state: &mut State| {
                state.store.holds.get_mut(&number).and_then(|hold| hold.insert(file, text));
            });
            let until = Instant::now() + MARGIN;
            self.lock().faults.late.push(Late { left: Some(6), until, task: None, settles: false, effect });
        }
        written?;
        let last = text.lines().last().unwrap_or_default();
        let kills = self.lock().faults.kill_after_entry.take_if(|entry| last.contains(&**entry)).is_some();
        if kills {
            self.die(Fault::CutAfter).await
        }
        Ok(())
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        let names =
            |kept: &mut Kept| kept.holds.get(&number).into_iter().flat_map(|files| files.keys().cloned()).collect();
        self.keeping("store.files", CallKind::Read, |kept| Ok(names(kept))).await
    }
}

#[async_trait]
impl Snapshots for World {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        self.keeping("store.kept", CallKind::Read, |kept| Ok(kept.files.contains_key(name).then(|| name.to_owned())))
            .await
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        let content = std::fs::read(file)?;
        self.keeping("store.keep", CallKind::Keep, |kept| {
            kept.files.insert(name.to_owned(), content);
            Ok(name.to_owned())
        })
        .await
    }
}
