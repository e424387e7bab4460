//! Files that a guest writes and the lab reads. Their content is not trusted.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, bail};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Longest content that is read, in bytes.
const LARGEST: u64 = 8192;

/// The beginning of the file. `None` if the guest has written nothing.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let opened = File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| format!("opening {}", path.display()))?,
    };
    if !file.metadata()?.is_file() {
        bail!("{} is no file", path.display());
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text).with_context(|| format!("reading {}", path.display()))?;
    Ok(Some(text))
}
