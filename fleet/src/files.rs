//! Files of the operator that are whole or not there, and for their owner's eyes only: journals, records, snapshots.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;

/// Opens a file that takes `path`'s place once it is committed: flushed, then renamed, then the directory flushed.
/// Dropped before that, it is removed.
///
/// # Errors
/// When the directory is not there or cannot be written to.
pub fn create(path: &Path) -> io::Result<AtomicWriteFile> {
    AtomicWriteFile::options().mode(0o600).preserve_mode(false).preserve_owner(false).open(path)
}

/// Writes a text whole, making missing directories: after a crash the old text or the new one is there.
///
/// # Errors
/// When it cannot be written; the old text then still stands.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let mut file = create(path)?;
        file.write_all(text.as_bytes())?;
        file.commit()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners() {
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
}
