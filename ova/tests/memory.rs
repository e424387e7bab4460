//! The numbers in a disk's bytes do not decide the memory of verifying. This is a separate program, because the limit
//! is the process's.

use std::fs;
use std::io::Cursor;
use std::ops::Range;

use nix::sys::resource::{Resource, setrlimit};
use ova::vmdk;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// The memory that a file of a few KiB may take, above that of the process.
const ENOUGH: u64 = 64 << 20;

/// A disk of 16 MiB with a few grains.
fn disk() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (raw, path) = (directory.path().join("raw"), directory.path().join("disk.vmdk"));
    let mut content = vec![0; 16 << 20];
    for (place, byte) in (0..20).map(|n| n * 700_000).zip(1..) {
        content[place..place + 5000].fill(byte);
    }
    fs::write(&raw, content).unwrap();
    vmdk::from_raw(&raw, &path, &vmdk::Options::default(), &mut |_| {}).unwrap();
    fs::read(path).unwrap()
}

fn verify(disk: &[u8]) -> Result<vmdk::Contents, vmdk::Error> {
    vmdk::verify(Cursor::new(disk), disk.len() as u64)
}

/// The process's address space, in bytes.
fn in_use() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

/// The positions of numbers: in header, footer and directory, and in the markers of grains and tables.
fn places(disk: &[u8]) -> Vec<Range<usize>> {
    let fields = [4, 12, 20, 28, 36, 44, 48, 56, 64].map(|at| at..at + 8);
    let sectors = (128..disk.len() / 512).map(|sector| sector * 512..sector * 512 + 16);
    fields.into_iter().chain(sectors).collect()
}

#[test]
fn memory_does_not_depend_on_a_disks_numbers() {
    let good = disk();
    // The memory that threads and allocator take once.
    verify(&good).unwrap();
    let limit = in_use() + ENOUGH;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    Vec::<u8>::new().try_reserve_exact(2 * ENOUGH as usize).expect_err("the limit has to work");

    // The program would end if it tried to take more.
    let numbers =
        prop_oneof![any::<u64>(), (0..64u32).prop_map(|bit| 1 << bit), (0..64u32).prop_map(|bit| u64::MAX >> bit)];
    let places = places(&good);
    let change = (any::<prop::sample::Index>(), 0..4usize, numbers);
    let changes = proptest::collection::vec(change, 1..4);
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let run = |changes: Vec<(prop::sample::Index, usize, u64)>| {
        let mut bad = good.clone();
        for (index, shift, number) in changes {
            let place = places[index.index(places.len())].clone();
            let at = place.start + shift * 4 % place.len();
            bad[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let _ = verify(&bad);
        Ok(())
    };
    TestRunner::new(config).run(&changes, run).unwrap();
}
