//! Opens a possible source of an OVF environment: an optical drive, or an image in a file. The state of the drive does
//! not change.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;

use crate::host::disk::device::forget_cached;

/// The size that Linux reports for a drive whose medium has no readable size: 0x1fffff sectors of 512 bytes
/// (`get_sectorsize` in drivers/scsi/sr.c).
const UNKNOWN_SIZE: u64 = 0x1f_ffff * 512;

/// Opens a drive or an image, and drops it from the page cache. An open tray stays open: without `O_NONBLOCK` Linux
/// closes it (`cdrom.autoclose`).
pub(super) fn open(drive: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(drive)?;
    forget_cached(&file, 0, 0);
    Ok(file)
}

/// Whether opening or reading failed because there is no medium or no drive. `drive` is the opened file, if any.
pub(super) fn is_empty(drive: Option<&mut File>, error: &io::Error) -> bool {
    let is = |code: Errno| error.raw_os_error() == Some(code as i32);
    if error.kind() == ErrorKind::NotFound || [Errno::ENOMEDIUM, Errno::ENXIO, Errno::ENODEV].into_iter().any(is) {
        return true;
    }
    // An empty drive that was opened in this way fails only when it is read, like a damaged medium.
    is(Errno::EIO) && drive.is_some_and(|drive| drive.seek(SeekFrom::End(0)).is_ok_and(has_no_medium))
}

fn has_no_medium(size: u64) -> bool {
    size == 0 || size == UNKNOWN_SIZE
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn open_tray_stays_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = open(file.path()).unwrap();
        let flags = OFlag::from_bits_truncate(fcntl(&opened, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
    }

    #[test]
    fn empty_drive_differs_from_a_damaged_medium() {
        let of = |code: Errno| io::Error::from_raw_os_error(code as i32);
        let sized = |size: u64, code: Errno| {
            let mut file = tempfile::tempfile().unwrap();
            file.set_len(size).unwrap();
            is_empty(Some(&mut file), &of(code))
        };
        for code in [Errno::ENOMEDIUM, Errno::ENXIO, Errno::ENODEV, Errno::ENOENT] {
            assert!(is_empty(None, &of(code)) && sized(700 << 20, code), "{code}");
        }
        assert!(sized(0, Errno::EIO) && sized(UNKNOWN_SIZE, Errno::EIO));
        assert!(!sized(700 << 20, Errno::EIO) && !is_empty(None, &of(Errno::EIO)));
        assert!(!sized(0, Errno::EACCES) && !is_empty(None, &of(Errno::EACCES)));
    }
}
