//! Files that are whole or not there: written beside their place, flushed,
//! then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `content` at `path` with the permission bits `mode`, making missing
/// folders. After a crash the old content or the new one is there, never a mix.
///
/// # Errors
/// Any error of the file system; the old content then still stands, and a
/// temporary file beside it may.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(io::Error::other("a path without a folder")),
    };
    let name = path.file_name().ok_or_else(|| io::Error::other("a path without a file name"))?;
    fs::create_dir_all(folder)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = folder.join(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

/// Like [`write_atomically`], but leaves a file alone that has this content
/// already. Says whether it wrote.
///
/// # Errors
/// As [`write_atomically`].
pub fn ensure_content(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    match fs::read(path) {
        Ok(present) if present == content => Ok(false),
        _ => write_atomically(path, content, mode).map(|()| true),
    }
}
