pub(crate) mod made;
mod refused;

use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use made::{GRAIN, Made, MadeGrain, text};

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A sparse raw image with `writes` at their offsets.
    fn raw(&self, grains: u64, writes: &[(u64, Vec<u8>)]) -> PathBuf {
        let path = self.path("raw");
        let file = File::create(&path).unwrap();
        file.set_len(grains * GRAIN_BYTES).unwrap();
        for (offset, bytes) in writes {
            file.write_all_at(bytes, *offset).unwrap();
        }
        path
    }

    fn vmdk(&self, raw: &Path, options: &Options) -> (Vec<u8>, WrittenDisk) {
        let path = self.path("disk.vmdk");
        let written = from_raw(raw, &path, options, &mut |_| {}).unwrap();
        (fs::read(path).unwrap(), written)
    }
}

fn read_back(vmdk: &[u8], raw: &Path) -> Result<Contents, Error> {
    read_stream(Cursor::new(vmdk), vmdk.len() as u64, raw)
}

/// Contents of a disk of the version that vSphere imports.
fn contents_of(capacity: u64, populated: u64, ends_with_marker: bool) -> Contents {
    Contents { capacity, populated, version: IMPORTED_VERSION, ends_with_marker }
}

fn verified(vmdk: &[u8]) -> Result<Contents, Error> {
    verify(Cursor::new(vmdk), vmdk.len() as u64)
}

fn sample(directory: &Directory) -> PathBuf {
    // Tables 0, 1 and 3 of four have grains. Noise does not compress. One grain is written, but with zeros.
    let noise: Vec<u8> = (0..GRAIN as u32 * 2).map(|n| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
    directory.raw(
        4 * 512,
        &[
            (0, text(1, 3 * GRAIN)),
            (10 * GRAIN_BYTES, vec![0; GRAIN]),
            (511 * GRAIN_BYTES + 100, text(2, GRAIN)),
            (3 * 512 * GRAIN_BYTES + 4096, noise),
            (4 * 512 * GRAIN_BYTES - 1, vec![7]),
        ],
    )
}

#[test]
fn disks_survive_the_round_trip_and_stay_sparse() {
    let directory = Directory::new();
    let raw = sample(&directory);
    let (vmdk, written) = directory.vmdk(&raw, &Options::default());
    let back = directory.path("back");
    let contents = read_back(&vmdk, &back).unwrap();
    assert!(fs::read(&raw).unwrap() == fs::read(&back).unwrap());
    assert_eq!(written.size, vmdk.len() as u64);
    assert_eq!((contents.capacity, contents.populated), (written.capacity, written.populated));
    assert_eq!(contents.populated, (3 + 2 + 3 + 1) * GRAIN_BYTES);
    assert!(fs::metadata(&back).unwrap().blocks() * 512 < contents.populated + GRAIN_BYTES);
    assert_eq!(verified(&vmdk).unwrap(), contents);
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let directory = Directory::new();
    let raw = directory.raw(600, &[(5000, text(3, 300 * GRAIN)), (599 * GRAIN_BYTES, text(4, 10))]);
    let with = |threads| directory.vmdk(&raw, &Options { threads: NonZeroUsize::new(threads), ..Options::default() }).0;
    let one = with(1);
    for threads in [0, 2, 3, 7] {
        assert!(one == with(threads), "{threads} threads");
    }
}

#[test]
fn the_descriptor_is_what_vsphere_expects() {
    let directory = Directory::new();
    let (vmdk, _) = directory.vmdk(&sample(&directory), &Options::default());
    let descriptor = String::from_utf8(vmdk[512..21 * 512].to_vec()).unwrap();
    insta::assert_snapshot!(descriptor.trim_end_matches('\0'));
}

#[test]
fn the_header_is_what_vsphere_expects() {
    let directory = Directory::new();
    let (vmdk, _) = directory.vmdk(&sample(&directory), &Options::default());
    let mut expected = b"KDMV\x03\0\0\0\x01\0\x03\0".to_vec();
    expected.extend_from_slice(&(4u64 * 512 * 128).to_le_bytes());
    for field in [128u64, 1, 20] {
        expected.extend_from_slice(&field.to_le_bytes());
    }
    expected.extend_from_slice(&512u32.to_le_bytes());
    for field in [0, u64::MAX, 128] {
        expected.extend_from_slice(&field.to_le_bytes());
    }
    expected.extend_from_slice(b"\0\n \r\n\x01\0");
    assert_eq!(vmdk[..79], expected);
    assert!(vmdk[79..512].iter().all(|&byte| byte == 0));
    // The end: footer marker, footer, end-of-stream marker.
    let footer = &vmdk[vmdk.len() - 1024..vmdk.len() - 512];
    assert_eq!(footer[..56], vmdk[..56]);
    assert_ne!(footer[56..64], vmdk[56..64]);
    assert!(vmdk[vmdk.len() - 512..].iter().all(|&byte| byte == 0));
}

#[test]
fn grains_are_zlib_streams() {
    let directory = Directory::new();
    let raw = directory.raw(1, &[(0, text(9, GRAIN))]);
    let (vmdk, _) = directory.vmdk(&raw, &Options::default());
    let grain = &vmdk[128 * 512..];
    assert_eq!(grain[..8], [0; 8]);
    let size = u32::from_le_bytes(grain[8..12].try_into().unwrap()) as usize;
    let mut decoder = flate2::write::ZlibDecoder::new(Vec::new());
    decoder.write_all(&grain[12..12 + size]).unwrap();
    assert!(decoder.finish().unwrap() == fs::read(raw).unwrap());
}

#[test]
fn content_decides_the_content_id() {
    let directory = Directory::new();
    let cid = |byte| {
        let raw = directory.raw(8, &[(70_000, vec![byte])]);
        let (vmdk, _) = directory.vmdk(&raw, &Options::default());
        vmdk[512..1536].to_vec()
    };
    assert!(cid(1) == cid(1));
    assert!(cid(1) != cid(2));
}

#[test]
fn an_empty_disk_is_written() {
    let directory = Directory::new();
    let raw = directory.raw(2000, &[]);
    let (vmdk, written) = directory.vmdk(&raw, &Options::default());
    assert_eq!(written.populated, 0);
    let contents = read_back(&vmdk, &directory.path("back")).unwrap();
    assert_eq!(contents.capacity, 2000 * GRAIN_BYTES);
}

#[test]
fn progress_ends_at_its_total() {
    let directory = Directory::new();
    let mut seen = Vec::new();
    from_raw(&sample(&directory), &directory.path("disk.vmdk"), &Options::default(), &mut |p| seen.push(p)).unwrap();
    let total = seen[0].total;
    assert!(seen.is_sorted_by_key(|p| p.done) && seen.iter().all(|p| p.total == total && p.done <= total));
    assert_eq!((seen[0].done, seen.last().unwrap().done), (0, total));
    assert!(total >= (3 + 1 + 2 + 3 + 1) * GRAIN_BYTES - GRAIN_BYTES);
}

#[test]
fn images_that_are_not_whole_grains_are_refused() {
    let directory = Directory::new();
    for length in [0, 1, GRAIN_BYTES - 512, GRAIN_BYTES + 1] {
        let path = directory.path("raw");
        File::create(&path).unwrap().set_len(length).unwrap();
        let error = from_raw(&path, &directory.path("disk.vmdk"), &Options::default(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Source { .. }), "{error}");
        assert!(!directory.path("disk.vmdk").exists());
    }
    let error =
        from_raw(directory.0.path(), &directory.path("disk.vmdk"), &Options::default(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn files_with_tables_in_front_are_read() {
    let directory = Directory::new();
    let grains = [0, 3, 512].map(|number| (number, text(number as u64, GRAIN)));
    let made = grains.each_ref().map(|(number, content)| MadeGrain::new(*number as u64, content));
    // As qemu-img, open-vmdk, and older qemu-img write them.
    for (redundant, end, has_marker) in [(true, 0, false), (false, 1, true), (true, 20, false)] {
        let file = Made::with_tables_in_front(&made, redundant, end).bytes;
        let contents = read_back(&file, &directory.path("back")).unwrap();
        assert_eq!(contents, contents_of(513 * GRAIN_BYTES, 3 * GRAIN_BYTES, has_marker));
        let raw = fs::read(directory.path("back")).unwrap();
        for (number, content) in &grains {
            assert!(raw[number * GRAIN..][..GRAIN] == *content);
        }
    }
}

/// More grains than in a batch, so that several threads decode them.
#[test]
fn several_batches_survive_the_round_trip() {
    let directory = Directory::new();
    let noise: Vec<u8> = (0..150 * GRAIN as u32).map(|n| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
    let raw = directory.raw(600, &[(0, noise), (400 * GRAIN_BYTES, text(1, 150 * GRAIN))]);
    let (mut vmdk, written) = directory.vmdk(&raw, &Options::default());
    let contents = read_back(&vmdk, &directory.path("back")).unwrap();
    assert_eq!(contents, contents_of(written.capacity, written.populated, true));
    assert!(fs::read(&raw).unwrap() == fs::read(directory.path("back")).unwrap());
    // Of several wrong grains in one batch, the first is named.
    for at in [3, 9, 12].map(|grain| 128 * 512 + grain * (GRAIN + 1024)) {
        vmdk[at..at + 400].fill(0x5a);
    }
    let error = verified(&vmdk).unwrap_err();
    assert!(
        matches!(error, Error::Damaged { offset, .. } if offset < 128 * 512 + 5 * (GRAIN as u64 + 1024)),
        "{error}"
    );
}

#[test]
fn files_that_are_no_vmdk_are_unsupported() {
    let directory = Directory::new();
    for bytes in [vec![0; 4096], b"QFI\xfb".repeat(1024), b"# Disk DescriptorFile\n".repeat(100)] {
        let error = read_back(&bytes, &directory.path("back")).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_sparse_disks_survive(
        grains in 1u64..1500,
        writes in proptest::collection::vec((any::<u64>(), 1usize..100_000, any::<u64>(), any::<bool>()), 0..12),
    ) {
        let directory = Directory::new();
        let size = grains * GRAIN_BYTES;
        let writes: Vec<_> = writes
            .into_iter()
            .map(|(at, length, seed, zeros)| {
                let at = at % size;
                let length = length.min((size - at) as usize);
                (at, if zeros { vec![0; length] } else { text(seed, length) })
            })
            .collect();
        let raw = directory.raw(grains, &writes);
        let (vmdk, _) = directory.vmdk(&raw, &Options::default());
        read_back(&vmdk, &directory.path("back")).unwrap();
        prop_assert!(fs::read(raw).unwrap() == fs::read(directory.path("back")).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4096), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() > 12 {
            bytes[..12].copy_from_slice(b"KDMV\x03\0\0\0\x01\0\x03\0");
        }
        prop_assert!(read_back(&bytes, &Directory::new().path("back")).is_err());
        prop_assert!(verified(&bytes).is_err());
    }

    /// Changed bytes are an error, or the format does not check them. They cause no panic, and need little memory.
    #[test]
    fn mutated_files_do_no_harm(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), front in any::<bool>()) {
        thread_local! {
            static GOOD: Vec<u8> = {
                let directory = Directory::new();
                let raw = directory.raw(700, &[(0, text(1, 2 * GRAIN)), (600 * GRAIN_BYTES, text(2, GRAIN))]);
                directory.vmdk(&raw, &Options::default()).0
            };
        }
        let mut bytes = GOOD.with(Clone::clone);
        for (index, value) in changes {
            let at = if front { index.index(80) } else { index.index(bytes.len()) };
            bytes[at] = value;
        }
        let directory = Directory::new();
        let (verified, read) = (verified(&bytes), read_back(&bytes, &directory.path("back")));
        // A disk that verifies can be unpacked, and the reverse.
        prop_assert_eq!(verified.ok(), read.ok());
    }
}
