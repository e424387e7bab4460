//! A file that appears under its name complete, or not at all.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is written as `.NAME.partial` in the directory of its destination.
///
/// [`NewFile::commit`] renames it to its name. If it is dropped before, the partial file is removed and the destination
/// is unchanged. If the process is killed, the partial file stays, and the next attempt overwrites it: at most one is
/// left.
pub(crate) struct NewFile {
    file: File,
    partial: PathBuf,
    destination: PathBuf,
    committed: bool,
}

impl NewFile {
    /// Opens an empty file that is to become `destination`. Fails if another process writes the same destination.
    pub(crate) fn create(destination: &Path) -> io::Result<NewFile> {
        let name = destination
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a file name"))?;
        let mut partial_name = std::ffi::OsString::from(".");
        partial_name.push(name);
        partial_name.push(".partial");
        let partial = destination.with_file_name(partial_name);

        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial)?;
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing this file; wait for it");
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Between our open and our lock, another process may have finished and renamed this file. Then it is that
        // process's file.
        let ours = file.metadata()?;
        match fs::metadata(&partial) {
            Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => {}
            Ok(_) | Err(_) => return Err(busy()),
        }
        file.set_len(0)?;
        Ok(NewFile { file, partial, destination: destination.into(), committed: false })
    }

    /// The open file, for reading and writing.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Writes the file through to its disk, then renames it to its name. An error leaves the destination unchanged.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.rename()?;
        let directory = self.destination.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Renames the file without waiting for its disk. A power cut may leave it empty, so this is for files that can be
    /// created again. An error leaves the destination unchanged.
    pub(crate) fn commit_without_sync(mut self) -> io::Result<()> {
        self.rename()
    }

    fn rename(&mut self) -> io::Result<()> {
        fs::rename(&self.partial, &self.destination)?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.committed {
            // A failure here has no remedy. The next attempt overwrites the file.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_appears_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut new = NewFile::create(&directory.path().join("a")).unwrap();
        new.file().write_all(b"x").unwrap();
        assert_eq!(names(directory.path()), [".a.partial"]);
        new.commit().unwrap();
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn dropped_it_leaves_the_destination_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "old").unwrap();
        let mut new = NewFile::create(&directory.path().join("a")).unwrap();
        new.file().write_all(b"x").unwrap();
        drop(new);
        assert_eq!(names(directory.path()), ["a"]);
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"old");
    }

    #[test]
    fn partial_files_of_killed_processes_are_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(".a.partial"), "half of it").unwrap();
        let mut new = NewFile::create(&directory.path().join("a")).unwrap();
        new.file().write_all(b"x").unwrap();
        new.commit().unwrap();
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"x");
    }

    #[test]
    fn two_writers_of_one_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let _first = NewFile::create(&path).unwrap();
        let second = NewFile::create(&path).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    }
}
