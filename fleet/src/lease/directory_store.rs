//! A store in a directory of this machine, for the lab.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;
use tempfile::TempDir;

use super::store::{name_of, number_of};
use super::{Snapshots, Store};
use crate::files;

/// The prefix of the directory for an incomplete file.
const SPOOL: &str = "spool-";

/// A directory with numbered directories.
#[derive(Clone, Debug)]
pub struct DirectoryStore(PathBuf);

impl DirectoryStore {
    /// The store in a directory, which is created with the first file.
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn numbered(&self, number: u64) -> PathBuf {
        self.0.join(name_of(number))
    }

    /// Runs a file operation on a blocking thread: the disk may be slow, and each write is flushed.
    async fn at_path<T: Send + 'static>(
        &self,
        doing: &'static str,
        path: PathBuf,
        act: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let store = self.0.clone();
        let done = tokio::task::spawn_blocking(move || {
            act(&store, &path).with_context(|| format!("{doing} {}", path.display()))
        });
        done.await.context("the thread that does it has ended")?
    }
}

/// The names in a directory. Empty if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}

/// Removes the incomplete files that a killed command has left in a directory. Call it only if no other command writes
/// there.
///
/// # Errors
/// The directory or a file cannot be read or removed. Some may be gone.
pub fn clear_spools(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.filter_map(Result::ok) {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(SPOOL)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[async_trait]
impl Store for DirectoryStore {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        self.at_path("reading", self.0.clone(), |store, _| {
            Ok(names(store)?.iter().filter_map(|name| number_of(name)).collect())
        })
        .await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        self.at_path("looking for", self.numbered(number), |_, path| path.try_exists()).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.at_path("making", self.numbered(number), |store, path| {
            fs::create_dir_all(store)?;
            match fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                made => made.and_then(|()| File::open(store)?.sync_all()).map(|()| true),
            }
        })
        .await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.at_path("removing", self.numbered(number), |_, path| fs::remove_dir_all(path)).await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.at_path("reading", self.numbered(number).join(file), |_, path| match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => bytes.map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())),
        })
        .await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let text = text.to_owned();
        // A directory that was removed is not created again: its number may be lower than that of another one.
        self.at_path("writing", self.numbered(number).join(file), move |_, path| {
            let mut file = files::create(path)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        })
        .await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.at_path("reading", self.numbered(number), |_, path| names(path)).await
    }
}

#[async_trait]
impl Snapshots for DirectoryStore {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        self.at_path("looking for", self.0.join(name), |_, path| {
            Ok(path.try_exists()?.then(|| path.display().to_string()))
        })
        .await
    }

    async fn spool(&self) -> anyhow::Result<TempDir> {
        self.at_path("making room in", self.0.clone(), |_, path| {
            fs::create_dir_all(path)?;
            clear_spools(path)?;
            tempfile::Builder::new().prefix(SPOOL).tempdir_in(path)
        })
        .await
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        let file = file.to_owned();
        self.at_path("keeping", self.0.join(name), move |store, path| {
            fs::create_dir_all(store)?;
            let mut kept = files::create(path)?;
            io::copy(&mut File::open(&file)?, &mut kept)?;
            kept.commit()?;
            Ok(path.display().to_string())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spool_is_in_the_store_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let folder = DirectoryStore::at(directory.path().join("upgrades"));
        let killed = folder.spool().await.unwrap().keep();
        assert_eq!(killed.parent(), Some(&*folder.0));
        fs::write(killed.join("half.db"), "half").unwrap();
        let spool = folder.spool().await.unwrap();
        assert!(!killed.exists());
        assert!(folder.numbers().await.unwrap().is_empty());
        fs::write(spool.path().join("a.db"), "a store").unwrap();
        folder.keep("a.db", &spool.path().join("a.db")).await.unwrap();
        drop(spool);
        let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.db"]);
    }
}
