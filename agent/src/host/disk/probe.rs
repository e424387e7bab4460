//! Whether a file system accepts writes, and whether its device answers. Both calls may block as long as the storage is
//! away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::mount::source;

/// A read that bypasses the page cache needs a complete block at such an address.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// Whether a mounted file system refuses writes after an error of its storage. It writes a file without a name, because
/// since Linux 6.12 ext4 does not show the error in its flags (`ST_RDONLY`).
pub fn refuses_writes(point: &Path) -> bool {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).mode(0o600).custom_flags(OFlag::O_TMPFILE.bits()).open(point)?;
        file.write_all(b"written")?;
        file.sync_all()
    };
    let refused = [Errno::EROFS, Errno::EIO].map(|errno| Some(errno as i32));
    write().is_err_and(|error| refused.contains(&error.raw_os_error()))
}

/// Whether the device of a mount point answers reads. Also true if the device was removed, because it never returns to
/// this mount.
pub fn device_answers(point: &Path) -> bool {
    let open = || -> io::Result<File> {
        let device = source(point)?.ok_or(io::ErrorKind::NotFound)?;
        OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(device)
    };
    answers(open())
}

/// Linux does not open a disk that it has set offline (`ENXIO`).
fn answers(device: io::Result<File>) -> bool {
    match device {
        // The device was removed, or the file system has no block device.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(device) => device.read_exact_at(&mut Block([0; 4096]).0, 0).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::stat::{major, minor};

    use super::*;
    use crate::host::command::{Command, Host, Runner};

    /// A file system with errors, on a loop device that certainly belongs to the test.
    #[test]
    fn file_system_with_an_error_refuses_writes() {
        let directory = tempfile::tempdir().unwrap();
        let (image, point) = (directory.path().join("image"), directory.path().join("point"));
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        Host.run(&Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)).unwrap();
        let test = move || {
            // The namespace ends with the thread, which unmounts the file system and frees the loop device.
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            let options = ["-t", "ext4", "-o", "loop,errors=remount-ro"];
            Host.run(&Command::new("mount").args(options).arg(&image).arg(&point)).unwrap();
            assert!(!refuses_writes(&point) && device_answers(&point));
            let number = point.metadata().unwrap().dev();
            let device = format!("/sys/dev/block/{}:{}", major(number), minor(number));
            let backing = std::fs::read_to_string(format!("{device}/loop/backing_file")).unwrap();
            assert_eq!(Path::new(backing.trim_end()), image, "the device is not the test's own");
            let name = std::fs::canonicalize(device).unwrap();
            let name = name.file_name().unwrap().to_str().unwrap();
            std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "tried by a test").unwrap();
            assert!(refuses_writes(&point) && device_answers(&point));
            File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
            assert!(!device_answers(&point), "its sectors are gone");
        };
        thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn offline_disk_does_not_answer() {
        let opened = |error: Errno| answers(Err(io::Error::from_raw_os_error(error as i32)));
        assert!(!opened(Errno::ENXIO) && !opened(Errno::EIO));
        assert!(opened(Errno::ENOENT), "a removed disk never answers this mount again");
    }

    #[test]
    fn full_file_system_and_tmpfs_accept_writes() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let full = crate::host::fixture::small_file_system(directory.path());
        assert!(!refuses_writes(directory.path()) && device_answers(directory.path()));
        let mut filling = File::create(directory.path().join("filling")).unwrap();
        io::copy(&mut io::repeat(0), &mut filling).unwrap_err();
        assert!(!refuses_writes(directory.path()));
        drop(full);
    }
}
