//! The output of go for components. It is larger than all other parts of the cache. It is useful for the next
//! component, spec or version, and after an interrupted build. It is removed on request, or by a build that compiles
//! nothing and finds it old.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Cache, Discarded, age, failed, is_directory, touch};
use crate::caller;

pub(super) const GO: &str = "go-build";

/// ID of this boot (random(4)). Each boot has another one.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Its length with the newline.
const BOOT_LENGTH: usize = 37;

/// The directory of go's output, locked until the value is dropped.
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
    /// The directory of go's output. Builds that run at the same time share it.
    pub fn compiled_by_go(&self) -> Result<Compiled> {
        let boot = fs::read_to_string(BOOT).with_context(|| format!("reading {BOOT}"))?;
        self.compiled_in_boot(&boot)
    }

    /// As [`Cache::compiled_by_go`], but first removes output from before this boot. go does not sync its files, and
    /// checks only the length of what it finds. After a power cut, an empty object of the right length could become
    /// part of a component in the cache.
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
                empty(&path).with_context(|| format!("clearing {} of files from before this boot", path.display()))?;
                note_boot(&lock, boot).with_context(locking)?;
            }
            lock.unlock().with_context(locking)?;
        }
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        // A build as root may have created it.
        caller::lend(&path)?;
        touch(&path);
        Ok(Compiled { path, _lock: lock })
    }

    /// Removes go's output if no build has begun to use it for `unused`, unless one uses it now. Keeps a link and its
    /// target: the user has put it there because of space.
    pub fn forget_compiled_by_go(&self, unused: Duration) {
        let path = self.root.join(GO);
        // The lock is released before the removal.
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

    pub(super) fn lock_beside(&self, name: &str) -> Result<File> {
        let path = self.root.join(format!("{name}.lock"));
        let lock = File::options().create(true).read(true).append(true).open(&path);
        let lock = lock.map_err(|error| failed(error, &format!("locking {}", path.display())))?;
        caller::lend(&path)?;
        Ok(lock)
    }
}

/// The boot ID in the lock file: that of the output in the directory.
fn noted_boot(lock: &File) -> io::Result<String> {
    let mut noted = vec![0; BOOT_LENGTH + 1];
    let length = lock.read_at(&mut noted, 0)?;
    Ok(String::from_utf8_lossy(&noted[..length]).into_owned())
}

fn note_boot(mut lock: &File, boot: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all(boot.as_bytes())
}

/// Removes the entries of go's cache only, which are directories of two hexadecimal digits (cmd/go/internal/cache):
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
    fn gos_output_is_removed_when_unused() {
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
        // The next build creates it again.
        assert!(cache.compiled_by_go().unwrap().path().is_dir());
    }

    #[test]
    fn output_from_before_a_power_cut_is_removed() {
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
        // An earlier release recorded no boot ID. A power cut can also lose the record.
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        File::create(directory.path().join(format!("{GO}.lock"))).unwrap();
        cache.compiled_in_boot(&boots[1]).unwrap();
        assert!(!object.parent().unwrap().exists());
        assert_eq!(fs::read_to_string(BOOT).unwrap().len(), BOOT_LENGTH);
    }

    #[test]
    fn a_link_and_its_target_are_kept() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = Cache::at(directory.path()).unwrap();
        let link = directory.path().join(GO);
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        fs::write(elsewhere.path().join("object"), "compiled").unwrap();
        cache.forget_compiled_by_go(Duration::ZERO);
        assert!(link.is_symlink() && link.join("object").exists());
    }
}
