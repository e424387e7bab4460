//! What go has compiled of components. It takes more room than all else in the cache, and is of use while components are
//! made: for the next one of the same build, of the other spec, of an earlier version, or after a build that was cut. It goes
//! when somebody says that all of them are made, or with a build that makes none and finds that none has wanted it for long.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Cache, Discarded, age, failed, is_directory, touch};
use crate::caller;

/// Its directory in the cache.
pub(super) const GO: &str = "go-build";

/// Where go keeps what it compiles. It stays until the value is dropped.
pub struct Compiled {
    path: PathBuf,
    _lock: File,
}

impl Compiled {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Cache {
    /// Where go keeps what it compiles. Builds that run at the same time share it.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub fn compiled_by_go(&self) -> Result<Compiled> {
        let lock = self.lock_beside(GO)?;
        lock.lock_shared().with_context(|| format!("locking {GO} of the cache"))?;
        let path = self.root.join(GO);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        // A build of root's may have left it.
        caller::lend(&path)?;
        touch(&path);
        Ok(Compiled { path, _lock: lock })
    }

    /// Removes what go has compiled when no build has begun to use it for `unused`, unless one works with it. A link in its
    /// place stays, and so does what it leads to: somebody has put it there for want of room here.
    pub fn forget_compiled_by_go(&self, unused: Duration) {
        let path = self.root.join(GO);
        // Let go of, lock and all, before it is removed.
        let removed = self.lock_beside(GO).and_then(|lock| {
            if is_directory(&path) && age(&path) >= unused && lock.try_lock().is_ok() {
                return self.discard(&path);
            }
            Ok(Discarded::InUse)
        });
        if let Err(error) = removed {
            log::warn!("what go has compiled stays in the cache: {error:#}");
        }
    }

    /// The file beside a directory of a compiler that is locked while it is at work.
    pub(super) fn lock_beside(&self, name: &str) -> Result<File> {
        let path = self.root.join(format!("{name}.lock"));
        let lock = File::options().create(true).append(true).open(&path);
        let lock = lock.map_err(|error| failed(error, &format!("locking {}", path.display())))?;
        caller::lend(&path)?;
        Ok(lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_has_compiled_goes_when_nobody_builds_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let forget = || cache.forget_compiled_by_go(Duration::ZERO);
        forget();
        let (mine, another) = (cache.compiled_by_go().unwrap(), cache.compiled_by_go().unwrap());
        let object = mine.path().join("object");
        fs::write(&object, "compiled").unwrap();
        drop(mine);
        forget();
        assert!(object.exists());
        drop(another);
        forget();
        assert!(!object.exists());
        // The next build makes it anew.
        assert!(cache.compiled_by_go().unwrap().path().is_dir());
    }

    #[test]
    fn a_link_to_where_there_is_room_stays_and_keeps_what_it_leads_to() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = Cache::at(directory.path()).unwrap();
        let link = directory.path().join(GO);
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        fs::write(elsewhere.path().join("object"), "compiled").unwrap();
        cache.forget_compiled_by_go(Duration::ZERO);
        assert!(link.is_symlink() && link.join("object").exists());
    }
}
