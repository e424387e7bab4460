//! Files of the operator that are complete or missing, and private to their owner: journals, records, snapshots.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;
use tempfile::NamedTempFile;

/// Opens a file that takes `path`'s place once it is committed: flushed, then renamed, then the directory flushed.
/// Dropped before that, it is removed.
pub fn create(path: &Path) -> io::Result<AtomicWriteFile> {
    AtomicWriteFile::options().mode(0o600).preserve_mode(false).preserve_owner(false).open(path)
}

/// Writes a text whole, and creates missing directories. After a crash the file has the old text or the new one.
///
/// # Errors
/// When it cannot be written. The file then keeps the old text.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let mut file = create(path)?;
        file.write_all(text.as_bytes())?;
        file.commit()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Writes a new file whole: flushes it, names it, then flushes the directory.
///
/// # Errors
/// When the name is taken, or the file cannot be written. The former file stays as it is, and no new one is left.
pub fn write_new(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    new(path, |file| file.write_all(content)).with_context(|| format!("writing {}", path.display()))
}

fn new(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Private to its owner from the beginning, and removed if it does not get its name.
    let mut file = NamedTempFile::new_in(directory)?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|refused| refused.error)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaced_file_is_whole_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/record.json");
        write(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut half = create(&path).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write(&path.join("below"), "").unwrap_err().to_string().contains("record.json/below"));
    }

    #[test]
    fn new_file_is_whole_and_replaces_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let full = new(&path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "half a file is left");
        write_new(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = format!("{:#}", write_new(&path, b"two").unwrap_err());
        assert!(taken.contains("key.pem") && taken.contains("exists"), "{taken}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left beside it");
    }
}
