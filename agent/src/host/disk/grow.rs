//! Makes the data partition and its file system as large as a disk that has
//! grown. Never makes anything smaller, and moves nothing: the partition keeps
//! its beginning, and all before it stays as it is.
//!
//! Each step looks first, so a cut is made good by the next look. sfdisk writes
//! the backup table before the primary one, so one of them is always whole, and
//! the file system is grown by the kernel while mounted, in its journal.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::device::{self, Disk};
use super::layout;
use crate::host::command::{Command, LONG, Runner};
use crate::host::platform::Platform;

/// A difference below this is left: the last block group of a file system may be dropped for
/// being too small, in bytes.
const GRAIN: u64 = 128 << 20;

/// Asks the hypervisor for the disk's size, where the kernel does not hear of a change by itself.
pub fn rescan(disk: &Disk, platform: &Platform) {
    let file = platform.sys_block(&disk.path).join("device/rescan");
    // Only SCSI disks have it; the others' drivers are told.
    if let Err(error) = fs::write(&file, "1")
        && error.kind() != io::ErrorKind::NotFound
    {
        log::warn!("asking for the size of {}: {error}", disk.path.display());
    }
}

/// Lets the partition table of our disk with this GUID reach to the disk's end. Returns where the data partition is.
///
/// # Errors
/// The table is not ours, or sfdisk fails; the former table then stands, in one of its two places at least.
pub fn table(disk: &Disk, guid: uuid::Uuid, runner: &dyn Runner) -> Result<Range<u64>, String> {
    let present = layout::check_table(&disk.path, guid, disk.size, runner)?;
    let whole = layout::tables_are_whole(&disk.path, disk.size, disk.sector)
        .map_err(|error| format!("its partition table cannot be read: {error}"))?;
    if whole && layout::data_range(disk.size).end <= present.end {
        return Ok(present);
    }
    log::info!("writing the partition table of {} anew for {} MiB", disk.path.display(), disk.size >> 20);
    layout::write_table(&disk.path, guid, disk.size, disk.sector, runner)
        .map_err(|error| format!("its partition table cannot be written: {error}"))?;
    File::open(&disk.path)
        .and_then(|file| file.sync_all())
        .map_err(|error| format!("its partition table cannot be flushed: {error}"))?;
    layout::check_table(&disk.path, guid, disk.size, runner)
}

/// Lets the mounted file system in the data partition `node` of `length` bytes fill it. Says whether it was smaller.
///
/// # Errors
/// resize2fs fails; the file system is whole and as large as it got.
pub fn file_system(node: &Path, length: u64, runner: &dyn Runner) -> Result<bool, String> {
    let present = file_system_size(node).map_err(|error| format!("its file system cannot be read: {error}"))?;
    if present + GRAIN > length {
        return Ok(false);
    }
    runner
        .run(&Command::new("resize2fs").arg(node).within(LONG))
        .map_err(|error| format!("its file system did not grow: {error}"))?;
    log::info!("the file system of the data disk has grown from {} to {} MiB", present >> 20, length >> 20);
    Ok(true)
}

/// All of it, while the data partition is mounted. Says whether anything was smaller than the disk.
///
/// # Errors
/// In words for a person; what was done until then is whole, and the next call goes on.
pub fn online(disk: &Disk, guid: uuid::Uuid, platform: &Platform, runner: &dyn Runner) -> Result<bool, String> {
    let range = table(disk, guid, runner)?;
    let node = device::partition(&disk.path, layout::DATA_NUMBER, &range, platform, runner)
        .map_err(|error| format!("the kernel does not take its partition table: {error:#}"))?;
    file_system(&node, range.end - range.start, runner)
}

/// The ext4 superblock has the number of blocks and their size (kernel
/// documentation, "ext4 Data Structures", super block).
fn file_system_size(node: &Path) -> io::Result<u64> {
    let mut block = [0; 1024];
    File::open(node)?.read_exact_at(&mut block, 1024)?;
    let number = |at: usize| u64::from(u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]));
    if block[0x38..0x3a] != [0x53, 0xef] || number(0x18) > 6 {
        return Err(io::Error::other("there is no ext4 file system"));
    }
    let high = if number(0x60) & 0x80 == 0 { 0 } else { number(0x150) };
    Ok((high << 32 | number(0x04)) * (1024 << number(0x18)))
}

#[cfg(test)]
#[path = "grow_tests.rs"]
mod tests;
