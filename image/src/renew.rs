//! Rewrites generated files in the user's sources: lock files and documentation.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;

use crate::caller;

/// Writes `text` to a file if it differs. The file belongs to the calling user then. An error leaves the former text.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if !std::fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        put(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    // Also if the text is equal: an earlier run may have been interrupted here.
    caller::lend(path)
}

fn put(path: &Path, text: &str) -> Result<()> {
    let mut options = AtomicWriteFile::options();
    let mut file = options.mode(0o644).preserve_mode(false).preserve_owner(false).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file.commit()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_written_when_it_differs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lock");
        write(&file, "one").unwrap();
        let made = std::fs::metadata(&file).unwrap();
        write(&file, "one").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), made.modified().unwrap());
        write(&file, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(made.permissions().mode() & 0o777, 0o644);
        assert!(format!("{:#}", write(&directory.path().join("no/lock"), "").unwrap_err()).contains("no/lock"));
    }
}
