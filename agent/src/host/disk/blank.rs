//! Proves that a disk is blank. Only a proved-blank disk is ever formatted.
//!
//! Blank means zero, read back from the disk: the whole first GiB, the whole
//! last 64 MiB, and 64 KiB at each 1/4096 of the disk (at least 16 MiB apart).
//! No program's "nothing found" counts: a tool that cannot read a disk or does
//! not know a format says the same. Where this finds what others leave:
//!
//! - partition tables: first and last sectors;
//! - ext2/3/4, XFS, swap, LUKS, LVM physical volumes: in the first 128 KiB, ext4's
//!   copies at multiples of 128 MiB;
//! - ZFS: four labels of 256 KiB, two at each end;
//! - Linux RAID: at the start (1.1, 1.2) or in the last 128 KiB (0.9, 1.0);
//! - btrfs: at 64 KiB and 64 MiB, its copy at 256 GiB is looked at by name;
//! - VMFS: from 1 MiB on;
//! - anything else of substance, encrypted or not: the samples.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::device::forget_cached;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How much is read of the start.
pub const HEAD: u64 = GIB;
/// How much is read of the end.
pub const TAIL: u64 = 64 * MIB;
const SAMPLE: u64 = 64 * KIB;
const SAMPLES: u64 = 4096;
const CLOSEST: u64 = 16 * MIB;
const BTRFS_COPY: u64 = 256 * GIB;

/// The place of a byte in `start..end` that is not zero, as far as the proof
/// looks; none if that part of the disk is blank.
pub fn first_content(disk: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let zeros = vec![0; MIB as usize];
    let mut buffer = zeros.clone();
    for (from, to) in ranges(start, end) {
        let mut place = from;
        while place < to {
            let length = (to - place).min(MIB) as usize;
            let part = &mut buffer[..length];
            disk.read_exact_at(part, place)?;
            if *part != zeros[..length] {
                let found = part.iter().position(|byte| *byte != 0).unwrap_or(0);
                return Ok(Some(place + found as u64));
            }
            place += length as u64;
        }
        forget_cached(disk, from, to - from);
    }
    Ok(None)
}

fn ranges(start: u64, end: u64) -> Vec<(u64, u64)> {
    let head = start.saturating_add(HEAD).min(end);
    let tail = end.saturating_sub(TAIL).max(head);
    let mut ranges = vec![(start, head), (tail, end)];
    let stride = ((end - start) / SAMPLES).max(CLOSEST).next_multiple_of(SAMPLE);
    let samples = (head.next_multiple_of(stride)..tail).step_by(stride as usize);
    for place in samples.chain([BTRFS_COPY]) {
        if place >= head && place < tail {
            ranges.push((place, place.saturating_add(SAMPLE).min(tail)));
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        file
    }

    #[test]
    fn a_single_byte_is_found_wherever_formats_keep_theirs() {
        let size = 300 * GIB;
        let disk = disk(size);
        assert_eq!(first_content(&disk, 0, size).unwrap(), None);
        let places = [0, 511, 1080, 4096, 64 * MIB + 64, GIB - 1, BTRFS_COPY + 64, size - 64 * KIB, size - 1];
        for place in places {
            disk.write_all_at(&[1], place).unwrap();
            assert_eq!(first_content(&disk, 0, size).unwrap(), Some(place));
            disk.write_all_at(&[0], place).unwrap();
        }
    }

    #[test]
    fn samples_are_close_enough_and_bounded() {
        for size in [20 * GIB, 2000 * GIB] {
            let ranges = ranges(0, size);
            let read: u64 = ranges.iter().map(|(from, to)| to - from).sum();
            assert!(ranges.len() < 4100 && read < HEAD + TAIL + 300 * MIB, "{} {read}", ranges.len());
            // 3 GiB of content anywhere cannot lie between two samples.
            let mut starts: Vec<_> = ranges.iter().map(|(from, _)| *from).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).skip(1).all(|pair| pair[1] - pair[0] < 3 * GIB));
        }
        assert_eq!(ranges(0, 100 * MIB), [(0, 100 * MIB), (100 * MIB, 100 * MIB)]);
    }

    #[test]
    fn an_end_before_the_range_is_an_error_not_blank() {
        assert!(first_content(&disk(MIB), 0, 2 * MIB).is_err());
    }
}
