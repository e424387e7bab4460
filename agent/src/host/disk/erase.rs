//! Makes a blank disk of our own data disk again. First the identity says that
//! it is to be erased, which survives a power cut; then, before anything is
//! mounted, everything but the identity goes, and the identity last. Any cut is
//! followed by doing it again. Touches no disk that does not bear our identity.

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

/// So much is erased between two reports of progress, in bytes.
const PIECE: u64 = 1 << 30;

/// Marks the disk with this identity as one that is to be erased. From now on nothing mounts it.
///
/// # Errors
/// The disk bears another identity now, or cannot be written. Whether it is marked then, the next
/// examination says.
pub fn mark(disk: &Disk, identity: &Identity) -> io::Result<()> {
    let slots = Slots::read(&disk.path)?;
    if slots.newest().map(|newest| (newest.disk, newest.holder)) != Some((identity.disk, identity.holder)) {
        return Err(io::Error::other("the disk bears another identity by now"));
    }
    let marked = Identity { state: DiskState::Erasing, ..identity.clone() };
    for _ in 0..2 {
        slots::write(&disk.path, &marked)?;
    }
    Ok(())
}

/// Erases a disk that is marked so, as long as it takes; `progress` is told the per cent that are done. Afterwards
/// the disk is blank.
///
/// # Errors
/// The disk is not marked, or cannot be written; it stays marked.
pub fn erase(disk: &Disk, runner: &dyn Runner, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let slots = Slots::read(&disk.path)?;
    let Some(identity) = slots.newest().filter(|identity| identity.state == DiskState::Erasing).cloned() else {
        return Err(io::Error::other("the disk is not one that is to be erased"));
    };
    // The content goes before what tells whose it was, the partition table among it.
    let mut place = layout::LUKS_HEADER;
    while place < disk.size {
        progress(place * 100 / disk.size);
        let end = (place + PIECE).min(disk.size);
        zero(&disk.path, place..end, runner)?;
        place = end;
    }
    zero(&disk.path, 0..layout::IDENTITY_A, runner)?;
    // Now slot B, while the mark stands in slot A, and then slot A: one sector that says that nothing of worth is on
    // the disk takes its place, so that there is no moment in which half an identity stands there.
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

/// Writes zeros and flushes them: where the storage can, without moving them.
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
#[path = "erase_tests.rs"]
mod tests;
