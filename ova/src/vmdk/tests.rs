use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

const GRAIN: usize = GRAIN_BYTES as usize;

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

    fn vmdk(&self, raw: &Path, options: &Options) -> (Vec<u8>, Written) {
        let path = self.path("disk.vmdk");
        let written = from_raw(raw, &path, options, &mut |_| {}).unwrap();
        (fs::read(path).unwrap(), written)
    }
}

fn read_back(vmdk: &[u8], raw: &Path) -> Result<Contents, Error> {
    read_stream(Cursor::new(vmdk), vmdk.len() as u64, raw, &mut |_| {})
}

/// Bytes that deflate can do something with, but not everything.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            b"abcdefgh"[(state >> 61) as usize]
        })
        .collect()
}

fn sample(directory: &Directory) -> PathBuf {
    // Tables 0, 1 and 3 of four have grains; noise does not compress; one grain is written, but with zeros.
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
fn a_disk_survives_the_round_trip_and_stays_sparse() {
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
    assert_eq!(inspect(&directory.path("disk.vmdk")).unwrap(), contents);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
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
fn an_empty_disk_is_a_disk() {
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
    seen.clear();
    to_raw(&directory.path("disk.vmdk"), &directory.path("back"), &mut |p| seen.push(p)).unwrap();
    assert_eq!(seen.last().unwrap().done, fs::metadata(directory.path("disk.vmdk")).unwrap().len());
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

/// A file as other writers make it: tables before the grains, no footer, zeros at the end.
fn with_tables_in_front(grains: &[Vec<u8>], redundant: bool) -> Vec<u8> {
    use super::{format, tables};
    let descriptor = b"# Disk DescriptorFile\ncreateType=\"streamOptimized\"\nRW 65664 SPARSE \"other.vmdk\"\n";
    let mut header = format::Header::stream_optimized(513 * 128, 20, 128);
    (header.version, header.directory) = (1, 21);
    if redundant {
        header.flags |= 2;
        header.redundant_directory = 40;
    }
    let mut file = header.encode().to_vec();
    file.extend_from_slice(descriptor);
    file.resize(128 * 512, 0);
    let mut table = [0; 512];
    for (number, grain) in grains.iter().enumerate() {
        table[number * 3] = (file.len() / 512) as u32;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(grain).unwrap();
        let compressed = encoder.finish().unwrap();
        file.extend_from_slice(&format::grain_marker(number as u64 * 3 * 128, compressed.len() as u32));
        file.extend_from_slice(&compressed);
        file.resize(file.len().next_multiple_of(512), 0);
    }
    let directory = tables::encode(&[22, 26]);
    file[21 * 512..22 * 512].copy_from_slice(&directory);
    file[22 * 512..26 * 512].copy_from_slice(&tables::encode(&table));
    file.resize(file.len() + 20 * 512, 0);
    file
}

#[test]
fn files_with_tables_in_front_are_read() {
    let directory = Directory::new();
    let grains = [text(1, GRAIN), text(2, GRAIN), text(3, GRAIN)];
    for redundant in [false, true] {
        let file = with_tables_in_front(&grains, redundant);
        let contents = read_back(&file, &directory.path("back")).unwrap();
        assert_eq!((contents.capacity, contents.populated), (513 * GRAIN_BYTES, 3 * GRAIN_BYTES));
        let raw = fs::read(directory.path("back")).unwrap();
        for (number, grain) in grains.iter().enumerate() {
            assert!(raw[number * 3 * GRAIN..][..GRAIN] == *grain);
        }
        // The end-of-stream marker and the padding may be missing.
        read_back(&file[..file.len() - 20 * 512], &directory.path("back")).unwrap();
    }
    let mut damaged = with_tables_in_front(&grains, false);
    damaged[22 * 512] ^= 1;
    let error = read_back(&damaged, &directory.path("back")).unwrap_err().to_string();
    assert!(error.contains("grain table puts grain 0"), "{error}");
    let mut longer = with_tables_in_front(&grains, false);
    longer.push(1);
    let error = read_back(&longer, &directory.path("back")).unwrap_err().to_string();
    assert!(error.contains("something follows"), "{error}");
}

#[test]
fn what_is_not_a_vmdk_is_unsupported() {
    let directory = Directory::new();
    for bytes in [vec![0; 4096], b"QFI\xfb".repeat(1024), b"# Disk DescriptorFile\n".repeat(100)] {
        let error = read_back(&bytes, &directory.path("back")).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

/// A change to a good file and what the error must say.
#[test]
fn each_damage_is_named() {
    let directory = Directory::new();
    let (good, _) = directory.vmdk(&sample(&directory), &Options::default());
    let last_table = {
        // The grain directory's fourth entry; the directory is the sector before footer marker, footer and end.
        let directory = &good[good.len() - 4 * 512..];
        u32::from_le_bytes(directory[12..16].try_into().unwrap()) as usize * 512
    };
    let end = good.len();
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let cases: &[(&str, Change<'_>)] = &[
        ("ends too early", &|f| f.truncate(end - 512)),
        ("ends too early", &|f| f.truncate(end / 2)),
        ("ends too early", &|f| f.truncate(700)),
        ("ends too early", &|f| f.clear()),
        ("something follows", &|f| f.push(0)),
        ("does not decompress", &|f| f[128 * 512 + 600] ^= 0x55),
        ("does not decompress", &|f| f[128 * 512 + 12] ^= 0xff),
        ("claims sector 1 ", &|f| f[128 * 512] = 1),
        ("claims sector", &|f| f[128 * 512 + 6] = 1),
        ("comes after", &|f| f[128 * 512 + 1] = 255),
        ("bytes of compressed data", &|f| f[128 * 512 + 11] = 0x7f),
        ("no marker of type", &|f| f[end - 1536 + 12] = 9),
        ("no end-of-stream marker", &|f| f[end - 512 + 12] = 1),
        ("contradict", &|f| f[end - 1024 + 64] = 1),
        ("no grain directory", &|f| f[end - 1024 + 60] = 1),
        ("without a footer", &|f| f.splice(end - 1536..end - 1024, vec![0; 512]).for_each(drop)),
        ("grain table puts grain 1536 at", &|f| f[last_table] ^= 1),
        ("grain table puts grain 1600 at", &|f| f[last_table + 64 * 4] = 5),
        ("no grain table at sector", &|f| f[end - 4 * 512] ^= 1),
        ("is missing", &|f| f[end - 4 * 512..end - 4 * 512 + 4].fill(0)),
        ("claims 5 sectors", &|f| f[last_table - 512] = 5),
        ("text mode", &|f| f[75] = b'\n'),
        ("version is 4", &|f| f[4] = 4),
        ("flags", &|f| f[10] = 1),
        ("compression method", &|f| f[77] = 2),
        ("grains have 64", &|f| f[20] = 64),
        ("capacity is 0", &|f| f[12..20].fill(0)),
        ("capacity", &|f| f[19] = 0xff),
        ("createType", &|f| f[512..1024].fill(b'\n')),
        ("descriptor does not lie", &|f| f[64..72].fill(0xff)),
    ];
    for (expected, change) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        let error = read_back(&bad, &directory.path("back")).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        assert!(!directory.path("back").exists(), "{expected}");
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
    }

    /// Whatever bytes are changed: either nothing the format checks, or an error; never a panic, never much memory.
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
        let _ = read_back(&bytes, &Directory::new().path("back"));
    }
}
