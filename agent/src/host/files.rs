//! Files that are complete or do not exist: written next to their place, flushed, then renamed. Also other functions
//! for files: checksums and times in file names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
pub use support_bundle::stamp;
use zeroize::Zeroizing;

/// Creates missing directories. After a crash the file has the old content or the new one, never a mix. After an error
/// the old content still exists, possibly with a temporary file next to it.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path)?;
    fs::create_dir_all(directory_of(path))?;
    remove(&temporary)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    put_in_place(&temporary, path)
}

/// The temporary file for `path`: `.NAME.new` in the same directory.
pub fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("a path without a file name"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    Ok(directory_of(path).join(temporary))
}

/// Renames the flushed file `temporary` to `path`, in the same directory, and flushes the directory. After an error the
/// old content may still exist.
pub fn put_in_place(temporary: &Path, path: &Path) -> io::Result<()> {
    power::step()?;
    fs::rename(temporary, path)?;
    power::step()?;
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// As [`write_atomically`], but does not write a file that has this content already. True if it was written.
pub fn ensure_content(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    match fs::read(path) {
        Ok(present) if present == content => Ok(false),
        _ => write_atomically(path, content, mode).map(|()| true),
    }
}

/// The record in a JSON file, if the file exists. The text is erased from memory. Errors name the file.
pub fn read_record<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    match fs::read(path).map(Zeroizing::new) {
        Ok(text) => {
            serde_json::from_slice(&text).map(Some).with_context(|| format!("understanding {}", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

pub fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// True if the file existed.
pub fn remove(path: &Path) -> io::Result<bool> {
    power::step()?;
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// After an error a part of the directory may remain.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn sha256(path: &Path) -> io::Result<[u8; 32]> {
    let (mut file, mut sum, mut part) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(sum.finalize().into()),
            length => sum.update(&part[..length]),
        }
    }
}

/// No effect outside of tests.
#[cfg(not(test))]
pub(crate) mod power {
    pub(crate) fn step() -> std::io::Result<()> {
        Ok(())
    }
}

/// Power cuts in tests: before any change that reaches the disk. After it, no change of this thread reaches the disk.
#[cfg(test)]
pub(crate) mod power {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Runs `work` until `things` changes have reached the disk. Returns its result and whether the power was cut.
    pub(crate) fn with<T>(things: u32, work: impl FnOnce() -> T) -> (T, bool) {
        LEFT.set(Some(things));
        let result = work();
        (result, LEFT.take() == Some(0))
    }

    pub(crate) fn step() -> io::Result<()> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("the power is cut")),
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
