//! Erases a data disk of the appliance. First its identity is marked, which survives a power cut. Then, before anything
//! is mounted, all other content is erased, and the identity last. After a power cut the erasure is repeated. A disk
//! without the appliance's identity is never erased.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::device::Disk;
use super::identity::{DiskState, Identity};
use super::layout;
use super::slots::{self, Preparation, SLOT_SIZE, Slots};
use crate::host::command::{Command, LONG, Runner};

/// Bytes that are erased between two reports of progress.
const PIECE: u64 = 1 << 30;

/// Marks the disk with this identity to be erased. From now on it is not mounted. After an error the next examination
/// shows whether it is marked.
pub fn mark(disk: &Disk, identity: &Identity) -> io::Result<()> {
    let slots = Slots::read(&disk.path)?;
    if slots.newest().map(|newest| (newest.disk, newest.holder)) != Some((identity.disk, identity.holder)) {
        return Err(io::Error::other("the disk has another identity now"));
    }
    let marked = Identity { state: DiskState::Erasing, ..identity.clone() };
    for _ in 0..2 {
        slots::write(&disk.path, &marked)?;
    }
    Ok(())
}

/// Erases a marked disk, which is blank afterwards. `progress` receives the percentage. After an error it stays marked.
pub fn erase(disk: &Disk, runner: &dyn Runner, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let slots = Slots::read(&disk.path)?;
    let Some(identity) = slots.newest().filter(|identity| identity.state == DiskState::Erasing).cloned() else {
        return Err(io::Error::other("the disk is not one that is to be erased"));
    };
    // The content and the partition table are erased before the identity that shows their owner.
    let mut place = layout::LUKS_HEADER;
    while place < disk.size {
        progress(place * 100 / disk.size);
        let end = (place + PIECE).min(disk.size);
        zero(&disk.path, place..end, runner)?;
        place = end;
    }
    zero(&disk.path, 0..layout::IDENTITY_A, runner)?;
    // Slot B is erased while slot A has the mark, and then slot A. A preparation record of one sector, which says that
    // the disk has no data, replaces the mark first. Therefore there is never an incomplete identity.
    if !holds_mark(&slots.a) {
        slots::write(&disk.path, &identity)?;
    }
    zero(&disk.path, layout::IDENTITY_B..layout::LUKS_HEADER, runner)?;
    let preparation = Preparation { disk: identity.disk, data: uuid::Uuid::new_v4(), holder: identity.holder };
    slots::write_preparation(&disk.path, &preparation)?;
    zero(&disk.path, layout::IDENTITY_A + 512..layout::IDENTITY_B, runner)?;
    zero(&disk.path, layout::IDENTITY_A..layout::IDENTITY_A + 512, runner)?;
    progress(100);
    Ok(())
}

fn holds_mark(slot: &slots::Slot) -> bool {
    matches!(slot, slots::Slot::Whole { identity, .. } if identity.state == DiskState::Erasing)
}

/// Writes zeros and flushes them. Storage that supports it zeroes ranges without a transfer.
fn zero(disk: &Path, range: Range<u64>, runner: &dyn Runner) -> io::Result<()> {
    const PART: usize = 1 << 20;
    let length = range.end - range.start;
    let options = [format!("--offset={}", range.start), format!("--length={length}")];
    let large = length > SLOT_SIZE as u64;
    let discard = Command::new("blkdiscard").arg("--zeroout").args(options).arg(disk).within(LONG);
    if large && runner.run(&discard).is_ok() {
        return File::open(disk)?.sync_all();
    }
    let zeros = vec![0; PART];
    let file = OpenOptions::new().write(true).open(disk)?;
    let mut place = range.start;
    while place < range.end {
        let part = (range.end - place).min(PART as u64);
        file.write_all_at(&zeros[..part as usize], place)?;
        place += part;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests;
