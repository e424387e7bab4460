//! Snapshots of one cluster in a directory of this machine, of which the newest alone is kept: for who looks after many clusters, and
//! has not the room for all that ever was. Nobody else may read them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;
use tempfile::TempDir;

use super::{DirectoryStore, Snapshots};

/// A directory with the newest snapshot.
#[derive(Clone, Debug)]
pub struct LatestSnapshot(PathBuf);

impl LatestSnapshot {
    /// That of a directory, which is made when something is first kept.
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::at(self.0.clone())
    }

    /// Removes the directory, with what is in it.
    ///
    /// # Errors
    /// When it cannot be removed; one that is not there is no error.
    pub async fn clear(&self) -> anyhow::Result<()> {
        let directory = self.0.clone();
        let removed = tokio::task::spawn_blocking(move || match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", directory.display()))
            }
            _ => Ok(()),
        });
        removed.await.context("the thread that does it has ended")?
    }
}

#[async_trait]
impl Snapshots for LatestSnapshot {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        self.store().kept(name).await
    }

    async fn spool(&self) -> anyhow::Result<TempDir> {
        let directory = self.0.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            made.with_context(|| format!("making {}", directory.display()))
        });
        made.await.context("the thread that does it has ended")??;
        self.store().spool().await
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        let place = self.store().keep(name, file).await?;
        let (directory, name) = (self.0.clone(), name.to_owned());
        // It is kept: what stays of those before takes room, and no more.
        let pruned = tokio::task::spawn_blocking(move || {
            for entry in fs::read_dir(&directory)?.filter_map(Result::ok) {
                if entry.file_type()?.is_file() && *entry.file_name() != *name {
                    fs::remove_file(entry.path())?;
                }
            }
            io::Result::Ok(())
        });
        if let Ok(Err(error)) = pruned.await {
            log::warn!("snapshots before {place} stay: {error}");
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_newest_is_kept_for_its_owner_alone_until_all_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("team.shop");
        let snapshots = LatestSnapshot::at(own.clone());
        assert_eq!(snapshots.kept("a.db").await.unwrap(), None);
        for name in ["a.db", "b.db"] {
            let spool = snapshots.spool().await.unwrap();
            fs::write(spool.path().join(name), name).unwrap();
            snapshots.keep(name, &spool.path().join(name)).await.unwrap();
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
}
