//! Proves that a disk is blank. Only a disk with this proof is ever formatted.
//!
//! Zeros must be read from the first GiB, the last 64 MiB, and 64 KiB at each 1/4096 of the disk. These samples are at
//! least 16 MiB apart. A tool's "nothing found" does not count: a tool reports the same if it cannot read a disk or does
//! not know a format. The proof finds the data of other formats here:
//!
//! - partition tables: first and last sectors;
//! - ext2/3/4, XFS, swap, LUKS, LVM physical volumes: in the first 128 KiB, ext4's copies at multiples of 128 MiB;
//! - ZFS: four labels of 256 KiB, two at each end;
//! - Linux RAID: at the start (1.1, 1.2) or in the last 128 KiB (0.9, 1.0);
//! - btrfs: at 64 KiB and 64 MiB, and its copy at 256 GiB is read explicitly;
//! - VMFS: from 1 MiB on;
//! - any other large content, encrypted or not: the samples.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::device::forget_cached;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub const HEAD: u64 = GIB;
pub const TAIL: u64 = 64 * MIB;
const SAMPLE: u64 = 64 * KIB;
const SAMPLES: u64 = 4096;
const CLOSEST: u64 = 16 * MIB;
const BTRFS_COPY: u64 = 256 * GIB;

/// The place of a byte in `start..end` that is not zero, among the parts that the proof reads. `None` if that range is
/// blank.
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
    fn single_byte_is_found_where_formats_have_data() {
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
            // 3 GiB of content never fit between two samples.
            let mut starts: Vec<_> = ranges.iter().map(|(from, _)| *from).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).skip(1).all(|pair| pair[1] - pair[0] < 3 * GIB));
        }
        assert_eq!(ranges(0, 100 * MIB), [(0, 100 * MIB), (100 * MIB, 100 * MIB)]);
    }

    #[test]
    fn disk_that_ends_early_is_not_blank() {
        assert!(first_content(&disk(MIB), 0, 2 * MIB).is_err());
    }
}
