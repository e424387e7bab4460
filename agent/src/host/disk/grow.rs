//! Grows the data partition and its file system to the size of a disk that has grown. It never shrinks or moves
//! anything: the partition keeps its start, and all data before it stay.
//!
//! Each step looks first, so the next call completes an interrupted one. The backup table is written before the primary
//! one by sfdisk, so that one of them is always valid. The kernel grows the mounted file system in its journal.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::device::{self, Disk};
use super::layout;
use crate::host::command::{Command, LONG, Runner};
use crate::host::platform::Platform;

/// Smaller differences are ignored, in bytes: a file system may omit a last block group that would be too small.
const GRAIN: u64 = 128 << 20;

/// Asks the hypervisor for the disk's size, if the kernel does not learn of a change by itself.
pub fn rescan(disk: &Disk, platform: &Platform) {
    let file = platform.sys_block(&disk.path).join("device/rescan");
    // Only SCSI disks have the file. Drivers of other disks are notified.
    if let Err(error) = fs::write(&file, "1")
        && error.kind() != io::ErrorKind::NotFound
    {
        log::warn!("asking for the size of {}: {error}", disk.path.display());
    }
}

/// Extends the partition table of the appliance's disk with this GUID to the disk's end. Returns the range of the data
/// partition. If sfdisk fails, the former table exists in at least one of its two places.
pub fn table(disk: &Disk, guid: uuid::Uuid, runner: &dyn Runner) -> Result<Range<u64>, String> {
    let present = layout::check_table(&disk.path, guid, disk.size, runner)?;
    let whole = layout::tables_are_whole(&disk.path, disk.size, disk.sector)
        .map_err(|error| format!("its partition table cannot be read: {error}"))?;
    if whole && layout::data_range(disk.size).end <= present.end {
        return Ok(present);
    }
    log::info!("writing the partition table of {} again for {} MiB", disk.path.display(), disk.size >> 20);
    layout::write_table(&disk.path, guid, disk.size, disk.sector, runner)
        .map_err(|error| format!("its partition table cannot be written: {error}"))?;
    File::open(&disk.path)
        .and_then(|file| file.sync_all())
        .map_err(|error| format!("its partition table cannot be flushed: {error}"))?;
    layout::check_table(&disk.path, guid, disk.size, runner)
}

/// Grows the mounted file system to the `length` bytes of the data partition `node`. True if it was smaller. If
/// resize2fs fails, the file system is valid, and as large as it got.
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

/// Does all steps while the data partition is mounted. True if the partition or its file system was smaller than the
/// disk. After an error, completed steps are valid and the next call continues.
pub fn online(disk: &Disk, guid: uuid::Uuid, platform: &Platform, runner: &dyn Runner) -> Result<bool, String> {
    let range = table(disk, guid, runner)?;
    let node = device::partition(&disk.path, layout::DATA_NUMBER, &range, platform, runner)
        .map_err(|error| format!("the kernel does not take its partition table: {error:#}"))?;
    file_system(&node, range.end - range.start, runner)
}

/// The ext4 superblock has the number of blocks and their size (kernel documentation, "ext4 Data Structures", super
/// block).
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
mod tests;
