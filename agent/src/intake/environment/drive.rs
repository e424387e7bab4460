//! Opens what an OVF environment may be on: an optical drive, or an image in a
//! file. Leaves the drive as it is.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;

use crate::host::disk::device::forget_cached;

/// What Linux gives for the size of a drive whose medium it cannot ask for one:
/// 0x1fffff sectors of 512 bytes (`get_sectorsize` in drivers/scsi/sr.c).
const UNKNOWN_SIZE: u64 = 0x1f_ffff * 512;

/// Opens a drive or an image to be read from the medium, not from memory. An
/// open tray stays open: without `O_NONBLOCK` Linux closes it (`cdrom.autoclose`).
///
/// # Errors
/// As open(2).
pub(super) fn open(drive: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(drive)?;
    forget_cached(&file, 0, 0);
    Ok(file)
}

/// Whether opening or reading failed because no medium or no drive is there.
/// `drive` is what was opened, if it was.
pub(super) fn is_empty(drive: Option<&mut File>, error: &io::Error) -> bool {
    let is = |code: Errno| error.raw_os_error() == Some(code as i32);
    if error.kind() == ErrorKind::NotFound || [Errno::ENOMEDIUM, Errno::ENXIO, Errno::ENODEV].into_iter().any(is) {
        return true;
    }
    // Opened in this way an empty drive fails when it is read only, as a damaged medium does.
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
    fn an_open_tray_stays_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = open(file.path()).unwrap();
        let flags = OFlag::from_bits_truncate(fcntl(&opened, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
    }

    #[test]
    fn an_empty_drive_is_told_from_a_damaged_medium() {
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
