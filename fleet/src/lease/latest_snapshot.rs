//! The newest snapshot of one cluster in a directory of this machine. It is for a program with many clusters and no
//! room for all snapshots. Such directories have a common parent, and their total size is bounded. Other users cannot
//! read them.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;
use tempfile::TempDir;

use super::space_quota::{Budget, Promised, SpaceQuota};
use super::{DirectoryStore, Snapshots};

/// A directory with the newest snapshot.
#[derive(Clone, Debug)]
pub struct LatestSnapshot {
    directory: PathBuf,
    budget: Budget,
    promised: Promised,
    /// The machine's name in messages.
    machine: String,
}

impl LatestSnapshot {
    /// The snapshots in a directory, which is created with the first file. `budget` is for all directories with the
    /// same parent, and `promised` is what they share. `machine` is the machine's name in messages.
    pub fn at(directory: PathBuf, budget: Budget, promised: Promised, machine: &str) -> Self {
        Self { directory, budget, promised, machine: machine.to_owned() }
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::at(self.directory.clone())
    }

    fn place(&self, path: &str) -> String {
        format!("{path} on {}", self.machine)
    }

    /// Runs a file operation on a blocking thread.
    async fn within<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Path) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let directory = self.directory.clone();
        tokio::task::spawn_blocking(move || act(&directory)).await.context("the thread that does it has ended")?
    }

    /// The size of the last file, in bytes, if there was no room for it. Returned once.
    pub fn lacked(&self) -> Option<u64> {
        self.room().lacked()
    }

    /// Makes room for this many bytes by removing files from directories of these names next to this one. The order is
    /// those of the same owner first, then the oldest. No file goes that is younger than an hour, or without making
    /// enough room.
    ///
    /// # Errors
    /// The available room cannot be measured.
    pub async fn makes_room(&self, bytes: u64, spare: BTreeSet<String>) -> anyhow::Result<()> {
        let room = self.room();
        self.within(move |_| room.make(bytes, &spare)).await
    }

    /// Removes the directory with its content. One that does not exist is no error.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub async fn clear(&self) -> anyhow::Result<()> {
        self.within(|directory| match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", directory.display()))
            }
            _ => Ok(()),
        })
        .await
    }
}

#[async_trait]
impl Snapshots for LatestSnapshot {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(self.store().kept(name).await?.map(|path| self.place(&path)))
    }

    async fn spool(&self) -> anyhow::Result<TempDir> {
        self.within(|directory| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.with_context(|| format!("making {}", directory.display()))
        })
        .await?;
        self.store().spool().await
    }

    fn room(&self) -> SpaceQuota {
        SpaceQuota::within(self.directory.clone(), self.budget, self.promised.clone())
    }

    /// The file is renamed: there is no room for two of it.
    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        let (room, file, name) = (self.room(), file.to_owned(), name.to_owned());
        let kept = self.within(move |directory| {
            // Others may have stored files since the transfer began.
            room.may_keep(fs::metadata(&file)?.len())?;
            let path = directory.join(&name);
            fs::rename(&file, &path)
                .and_then(|()| File::open(directory)?.sync_all())
                .with_context(|| format!("keeping {}", path.display()))?;
            // The file is stored. Old files that stay only take room.
            if let Err(error) = prune(directory, &name) {
                log::warn!("snapshots before {} stay: {error}", path.display());
            }
            Ok(path.display().to_string())
        });
        Ok(self.place(&kept.await?))
    }
}

/// Removes all files but one.
fn prune(directory: &Path, name: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.filter_map(Result::ok) {
        if entry.file_type()?.is_file() && *entry.file_name() != *name {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const MB: u64 = 1_000_000;

    fn of(directory: &Path, most: u64) -> LatestSnapshot {
        let budget = Budget { most, part: 100, share: 100, reserve: 0 };
        LatestSnapshot::at(directory.to_owned(), budget, Promised::default(), "cp2")
    }

    #[tokio::test]
    async fn newest_snapshot_is_private_and_kept_until_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("team.shop");
        let snapshots = of(&own, MB);
        assert_eq!(snapshots.kept("a.db").await.unwrap(), None);
        for name in ["a.db", "b.db"] {
            let spool = snapshots.spool().await.unwrap();
            let pulled = spool.path().join(name);
            fs::write(&pulled, name).unwrap();
            let inode = fs::metadata(&pulled).unwrap().ino();
            let place = snapshots.keep(name, &pulled).await.unwrap();
            assert_eq!(place, format!("{} on cp2", own.join(name).display()));
            assert_eq!(snapshots.kept(name).await.unwrap(), Some(place));
            assert_eq!(fs::metadata(own.join(name)).unwrap().ino(), inode, "it was copied");
        }
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(
            (snapshots.kept("a.db").await.unwrap(), fs::read(own.join("b.db")).unwrap()),
            (None, b"b.db".to_vec())
        );
        snapshots.clear().await.unwrap();
        snapshots.clear().await.unwrap();
        assert!(!own.exists());
    }

    #[tokio::test]
    async fn clusters_share_the_room_for_snapshots() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["team.shop", "team.bank"].map(|name| of(&directory.path().join(name), 3 * MB));
        let keeps = async |snapshots: &LatestSnapshot, name: &str| {
            let spool = snapshots.spool().await.unwrap();
            let pulled = spool.path().join(name);
            fs::write(&pulled, vec![1; 2 * MB as usize]).unwrap();
            snapshots.keep(name, &pulled).await
        };
        keeps(&one, "a.db").await.unwrap();
        drop(other.spool().await.unwrap());
        assert_eq!(other.room().bytes(), MB);
        let error = format!("{:#}", keeps(&other, "a.db").await.unwrap_err());
        assert!(error.contains("2000000 bytes, and there is room for 1000000"), "{error}");
        assert_eq!(fs::read_dir(directory.path().join("team.bank")).unwrap().count(), 0, "something of it stays");
        // The former file does not block its successor, and makes room once it is removed.
        keeps(&one, "b.db").await.unwrap();
        one.clear().await.unwrap();
        keeps(&other, "a.db").await.unwrap();
    }
}
