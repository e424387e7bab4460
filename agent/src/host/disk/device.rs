//! A disk as the kernel shows it: size, sectors, device nodes of partitions.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::host::command::{Command, Runner};
use crate::host::platform::Platform;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    /// Capacity in bytes.
    pub size: u64,
    /// Size of the logical sectors, in bytes.
    pub sector: u64,
    /// Whether the kernel refuses writes to it.
    pub read_only: bool,
}

impl Disk {
    pub fn open(path: &Path, platform: &Platform) -> io::Result<Self> {
        let size = File::open(path)?.seek(SeekFrom::End(0))?;
        let directory = platform.sys_block(path);
        let number = |attribute: &str| -> Option<u64> {
            fs::read_to_string(directory.join(attribute)).ok().and_then(|text| text.trim().parse().ok())
        };
        Ok(Self {
            path: path.to_owned(),
            size,
            sector: number("queue/logical_block_size").unwrap_or(512),
            read_only: number("ro").is_some_and(|flag| flag != 0),
        })
    }
}

/// Returns the device node of a partition that covers `range` of the disk, in bytes. If the kernel knows another table,
/// it reads the table again. If no device manager made the node, it is created.
pub fn partition(
    disk: &Path,
    number: u32,
    range: &Range<u64>,
    platform: &Platform,
    runner: &dyn Runner,
) -> anyhow::Result<PathBuf> {
    let disk = disk.canonicalize()?;
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The kernel puts a `p` between name and number if the name ends in a digit.
    let between = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    let name = format!("{name}{between}{number}");
    let directory = platform.path("/sys/class/block").join(&name);
    // A loop device keeps the partitions of its former file.
    let known = || -> Option<Range<u64>> {
        let sectors = |attribute: &str| -> Option<u64> {
            fs::read_to_string(directory.join(attribute)).ok()?.trim().parse().ok()
        };
        // sysfs counts in units of 512 bytes, for all sector sizes.
        let start = sectors("start")? * 512;
        Some(start..start + sectors("size")? * 512)
    };
    if known().as_ref() != Some(range) {
        runner.run(&Command::new("partx").arg("--update").arg(&disk))?;
        if known().as_ref() != Some(range) {
            anyhow::bail!("the kernel does not show partition {name} where the partition table has it");
        }
    }
    let numbers = directory.join("dev");
    let text = fs::read_to_string(&numbers)
        .map_err(|error| anyhow::anyhow!("the kernel does not show partition {name}: {error}"))?;
    let device = text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some(makedev(major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| anyhow::anyhow!("device numbers of {name}: {text:?}"))?;
    let node = disk.with_file_name(&name);
    let stands = |node: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(node).is_ok_and(|node| node.file_type().is_block_device() && node.rdev() == device)
    };
    if !stands(&node) {
        match fs::remove_file(&node) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                anyhow::bail!("removing the stale node {}: {error}", node.display())
            }
            _ => {}
        }
        match mknod(&node, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, device) {
            // The device manager was faster.
            Err(nix::Error::EEXIST) if stands(&node) => {}
            result => result.map_err(|error| anyhow::anyhow!("making the node {}: {error}", node.display()))?,
        }
    }
    Ok(node)
}

/// Whether a mount or a volume manager on this host uses the disk.
pub fn is_in_use(disk: &Path) -> io::Result<bool> {
    use std::os::unix::fs::OpenOptionsExt;
    // Linux, open(2): O_EXCL on a block device fails with EBUSY if it is in use.
    match fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(disk) {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Drops a range from the page cache. A large read then does not displace other pages, and a repeated one reads the
/// disk.
pub fn forget_cached(file: &File, start: u64, length: u64) {
    // This is only advice. Without it the result is the same.
    let (start, length) = (i64::try_from(start).unwrap_or(0), i64::try_from(length).unwrap_or(0));
    let _ = posix_fadvise(file, start, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}
