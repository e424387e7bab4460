//! What go has compiled of components. It takes more room than all else in the cache, and is of use while components are
//! made: for the next one of the same build, of the other spec, of an earlier version, or after a build that was cut. It goes
//! when somebody says that all of them are made, or with a build that makes none and finds that none has wanted it for long.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Cache, Discarded, age, failed, is_directory, touch};
use crate::caller;

/// Its directory in the cache.
pub(super) const GO: &str = "go-build";

/// What the kernel calls this boot (random(4)): another one after each.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Its length with the line's end.
const BOOT_LENGTH: usize = 37;

/// Where go keeps what it compiles. It stays until the value is dropped.
pub struct Compiled {
    path: PathBuf,
    _lock: File,
}

impl Compiled {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Cache {
    /// Where go keeps what it compiles. Builds that run at the same time share it.
    pub fn compiled_by_go(&self) -> Result<Compiled> {
        let boot = fs::read_to_string(BOOT).with_context(|| format!("reading {BOOT}"))?;
        self.compiled_in_boot(&boot)
    }

    /// As [`Cache::compiled_by_go`]. What is there from before this boot goes: go has nothing written to the disk, and looks at
    /// no more than the length of what it finds. After a power cut an object of the right length and with nothing in it would
    /// come into a component that is kept for whole.
    fn compiled_in_boot(&self, boot: &str) -> Result<Compiled> {
        let locking = || format!("locking {GO} of the cache");
        let path = self.root.join(GO);
        let lock = self.lock_beside(GO)?;
        loop {
            lock.lock_shared().with_context(locking)?;
            if noted_boot(&lock).with_context(locking)? == boot {
                break;
            }
            lock.unlock().with_context(locking)?;
            lock.lock().with_context(locking)?;
            // Another build may have been first.
            if noted_boot(&lock).with_context(locking)? != boot {
                empty(&path)
                    .with_context(|| format!("clearing {} of what was there before this boot", path.display()))?;
                note_boot(&lock, boot).with_context(locking)?;
            }
            lock.unlock().with_context(locking)?;
        }
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
        let lock = File::options().create(true).read(true).append(true).open(&path);
        let lock = lock.map_err(|error| failed(error, &format!("locking {}", path.display())))?;
        caller::lend(&path)?;
        Ok(lock)
    }
}

/// The boot that the lock's file names: that in which all was compiled that is there.
fn noted_boot(lock: &File) -> io::Result<String> {
    let mut noted = vec![0; BOOT_LENGTH + 1];
    let length = lock.read_at(&mut noted, 0)?;
    Ok(String::from_utf8_lossy(&noted[..length]).into_owned())
}

fn note_boot(mut lock: &File, boot: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all(boot.as_bytes())
}

/// Removes what go keeps in its cache, directories of two hexadecimal digits (cmd/go/internal/cache), and nothing else:
/// it may be behind a link.
fn empty(cache: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(cache) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name.len() == 2 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
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
    fn what_was_compiled_before_a_power_cut_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let boots = ["1", "2"].map(|digit| format!("{}\n", digit.repeat(BOOT_LENGTH - 1)));
        let begun = || cache.compiled_in_boot(&boots[0]).unwrap();
        let (object, other) = (begun().path().join("0a/object"), begun().path().join("notes/object"));
        for file in [&object, &other] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "compiled").unwrap();
        }
        let another = begun();
        drop(begun());
        assert!(object.exists());
        drop(another);
        cache.compiled_in_boot(&boots[1]).unwrap();
        assert!(!object.exists() && other.exists());
        // An earlier release noted no boot, and neither did one whose note the power cut took.
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        File::create(directory.path().join(format!("{GO}.lock"))).unwrap();
        cache.compiled_in_boot(&boots[1]).unwrap();
        assert!(!object.parent().unwrap().exists());
        assert_eq!(fs::read_to_string(BOOT).unwrap().len(), BOOT_LENGTH);
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
